// What to run, as values: made from a job file or a command line; script/ writes it as bash.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "aml_run/job_schema.hpp"
#include "aml_run/provision_policy.hpp"
#include "shared/slurm_options.hpp"

namespace amldist::run {

/// A text whose expressions have their values, or get them when the job runs.
struct FilledText {
  struct Value {
    std::string expression;  ///< "outputs.model"
    std::string text;
    std::string variable;  ///< of the script, which contains the value; empty: the value is `text`
  };
  std::string text;           ///< with ${{...}}, if there are `values`; else finished
  std::vector<Value> values;  ///< all that the text mentions; empty: the text is finished
  bool literally = false;     ///< each value becomes one word of bash
};

struct Variable {
  std::string name;
  FilledText value;
};

/// A line for bash in each task.
struct ShellLine {
  FilledText line;
};

/// A program and its arguments, exactly.
struct Program {
  std::vector<std::string> words;
  bool expand = true;  ///< $RANK and its like in them
};

/// A folder for results, made when the job starts; its path is in a variable of the script.
struct OutputFolder {
  std::string name;      ///< the NAME of ${{outputs.NAME}}
  std::string variable;  ///< AML_OUTPUT_NAME
  std::string path;      ///< absolute; empty: NAME in the job's folder for outputs
  bool is_file = false;  ///< the path is a file's: its folder is made, and the program writes the file
};

/// An input behind https:, kept in a folder of the user below one that the nodes share.
struct Download {
  std::string url;
  std::string shared_folder;
  std::string path;  ///< below it: UID/HOST/PATH
};

/// Packages that pip installs, in the form that uv takes.
struct PythonPackages {
  std::string python;        ///< "3.11"; empty: any
  std::string requirements;  ///< lines of pip's
};

/// The environment of environment.conda_file, made when the first job needs it.
struct CondaEnvironment {
  CondaPolicy policy;
  std::string text;                        ///< of the file; its hash names the environment
  std::optional<PythonPackages> packages;  ///< for uv, which does not read conda files
};

/// The image in which the tasks run.
struct Container {
  std::string image;
  ImagePolicy policy;
  std::vector<std::string> mounts;  ///< paths that it sees at the same places, besides the working folder
};

/// Where MLflow keeps its runs.
struct Tracking {
  bool own_store = false;  ///< the user's environment names one
  std::string experiment;  ///< or empty
};

/// The folder in which the tasks work.
struct WorkFolder {
  std::string path;         ///< must exist on each node; empty: where the job was submitted
  bool is_new = false;      ///< made when the job starts
  std::string copied_from;  ///< copied to `path` before the job is submitted; empty if it is not a copy
  bool is_azures = false;   ///< outputs/ and logs/ are made in it
};

/// A job of its own.
struct SingleJob {
  std::string record;  ///< path of the record of its end, without its number; empty: the end is not recorded
};

/// A job of a pipeline's run.
struct PipelineJobPlace {
  std::string run_folder;
  std::string name;       ///< of the job
  bool ends_run = false;  ///< the other jobs are ended if it fails
};

/// The trials of a sweep: an array of jobs, each with a folder of its own.
struct SweepPlace {
  struct Parameter {
    std::string name;
    std::vector<std::string> values;  ///< by trial
  };
  std::string run_folder;
  std::string folder;  ///< of the sweep
  std::vector<Parameter> parameters;
  std::string code;      ///< copied for each trial; empty: the trial works in its folder
  bool watched = false;  ///< a policy or a limit may end a trial early
};

/// The cluster of a job of kind ray, which `aml-dist ray` starts around the command.
struct RayCluster {
  std::optional<std::string> dashboard;  ///< its port; empty: one of the step's
  std::string head_arguments;            ///< of `ray start`
  std::string worker_arguments;

  /// Words in front of the command.
  [[nodiscard]] std::vector<std::string> words() const;
};

struct Plan {
  std::string source;                ///< the job file, as the user named it; empty: a command line
  std::vector<std::string> heading;  ///< sentences for the top of the script
  std::vector<Ignored> ignored;
  std::vector<std::string> warnings;
  commands::SlurmOptions job;   ///< of sbatch
  commands::SlurmOptions step;  ///< of srun
  commands::SlurmOptions keep;  ///< of aml-dist keep; empty: the step is started once
  std::string option;           ///< after --aml-dist=; empty: a step without it
  std::variant<Program, ShellLine> command;
  std::optional<RayCluster> ray;
  std::vector<Variable> environment;
  std::vector<OutputFolder> outputs;
  std::optional<Tracking> tracking;
  std::vector<Download> downloads;
  std::optional<CondaEnvironment> conda;
  std::optional<Container> container;
  std::vector<std::string> setup;  ///< the user's own lines of bash, before the step
  WorkFolder work;
  std::variant<SingleJob, PipelineJobPlace, SweepPlace> place;
};

}  // namespace amldist::run
