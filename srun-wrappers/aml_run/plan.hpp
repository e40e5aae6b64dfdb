// What is to run, before anybody has said how: made from a job file or a command line, written as a batch script or
// started as a step.
#pragma once

#include <string>
#include <string_view>
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
    std::string variable;  ///< of the script, which holds the value; empty: it is `text`
  };
  std::string text;           ///< with ${{...}}, if there are `values`; else finished
  std::vector<Value> values;  ///< all that the text mentions; empty: nothing is left to do
  bool literally = false;     ///< each value becomes one word of bash
};

struct Variable {
  std::string name;
  FilledText value;
};

/// A folder for results, made when the job starts; its path is in a variable of the script.
struct OutputFolder {
  std::string name;      ///< as ${{outputs.NAME}} says it
  std::string variable;  ///< AML_OUTPUT_NAME
  std::string path;      ///< absolute; empty: outputs/JOBID/NAME below the working folder
  bool is_file = false;  ///< the path is a file's: its folder is made, and the file left to the program
};

/// An input behind https:, and where its file comes.
struct Download {
  std::string url;
  std::string file;
};

struct Plan {
  std::string source;                ///< the job file, as the user named it; empty: a command line
  std::vector<std::string> heading;  ///< sentences for the top of the script
  commands::SlurmOptions job;        ///< for #SBATCH lines
  std::string option;                ///< behind --aml-dist=; empty: a step without it
  commands::SlurmOptions step;       ///< for the srun line
  std::vector<Variable> environment;
  std::vector<OutputFolder> outputs;
  std::string image;  ///< in which the tasks run; empty: on the node itself
  ImagePolicy image_policy;
  std::vector<std::string> mounts;  ///< paths that the container sees in their places, besides the working folder
  std::vector<Download> downloads;
  std::vector<std::string> software_lines;  ///< of bash, in front of `setup`: what makes the conda environment
  std::vector<std::string> setup;           ///< lines of bash in front of srun
  FilledText shell_line;                    ///< for bash -c in each task; empty: `words`
  std::string work_folder;     ///< of the tasks, which must be there on each node; empty: where the job was submitted
  std::string snapshot;        ///< to be copied to work_folder before the job is submitted; empty: nothing is
  bool azure_folders = false;  ///< outputs/ and logs/ are made in the working folder
  std::vector<std::string> words;  ///< program and arguments, exactly
  bool expand = true;              ///< $RANK and its like in `words`
  std::vector<Ignored> ignored;
  std::vector<std::string> warnings;
  std::string record;  ///< path of the record of the job's end; empty: none is kept
  /// What stands behind `record`: a variable of the script whose value does, or "" for nothing.
  std::string record_variable = "SLURM_JOB_ID";
  std::string record_suffix;  ///< and behind that
  /// Where outputs without a path of their own come, as bash writes it in double quotes.
  std::string output_folder = "$PWD/outputs/$SLURM_JOB_ID";
  std::vector<std::string> value_lines;  ///< of bash, in front of where values are put in: a trial's parameters
  std::vector<std::string> first_lines;  ///< of bash, in front of everything: what a run's job needs (runs/)
  std::vector<std::string> task_lines;   ///< of bash, in front of the step: what a sweep's trial needs
};

}  // namespace amldist::run
