// What `aml-run` was asked.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/text/result.hpp"
#include "shared/slurm_options.hpp"

namespace amldist::run {

struct CommandLine {
  std::string job_file;            ///< empty: `words` is the command
  std::vector<std::string> words;  ///< behind "--"
  std::string kind;                ///< --kind, as given; checked
  std::vector<std::pair<std::string, std::string>> set;
  std::vector<std::string> setup;
  std::string mpi;
  std::string instance_types;  ///< empty: the default file
  commands::SlurmOptions slurm;
  bool dry_run = false;
  bool wait = false;
  bool json = false;
  bool literal = false;
  bool test_only = false;     ///< sbatch says when it would start
  bool snapshot = false;      ///< the code folder is copied
  bool list = false;          ///< --list
  std::string run_verb;       ///< "show", "resume", "cancel", "stream", "download": about `run`
  std::string run;            ///< a run's name, its folder, or a job's number
  std::string svg;            ///< file for a picture
  std::string download_path;  ///< where --download puts the folder; empty: the working folder
  std::string metric;         ///< --metric-pattern: where in its log a trial says its metric
  bool expand = true;
  bool new_job = false;
  bool help = false;
  bool kind_help = false;  ///< --kind=help
  bool version = false;
  bool list_keys = false;
};

/// Reads the words behind the program's name. Errors: invalid_argument, in one sentence.
[[nodiscard]] Result<CommandLine> read_command_line(std::vector<std::string> words);

/// What --help prints.
[[nodiscard]] std::string help_text();

}  // namespace amldist::run
