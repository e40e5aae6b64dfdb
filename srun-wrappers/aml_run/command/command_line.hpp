// The parsed command line of `aml-run`.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/result.hpp"
#include "shared/slurm_options.hpp"

namespace amldist::run {

struct Command;

struct CommandLine {
  const Command* command = nullptr;  ///< the command; nullptr: run a job
  std::string id;                    ///< of the command: a run's name, its folder, or a job's number
  std::string job_file;              ///< empty: `words` is the command
  std::vector<std::string> words;    ///< after "--"
  std::string kind;                  ///< --kind, as given; checked
  std::vector<std::pair<std::string, std::string>> set;
  std::vector<std::string> setup;
  std::string mpi;
  std::string stop_before;
  std::string instance_types;  ///< empty: the default file
  commands::SlurmOptions slurm;
  commands::SlurmOptions keep;  ///< of aml-dist keep
  bool dry_run = false;
  bool wait = false;
  bool json = false;
  bool literal = false;
  bool test_only = false;     ///< sbatch says when it would start
  bool snapshot = false;      ///< the code folder is copied
  std::string download_path;  ///< where --download puts the folder; empty: the working folder
  std::string metric;         ///< --metric-pattern: how a trial reports its metric in its log
  bool expand = true;
  bool dashboard = false;  ///< Ray's
  bool new_job = false;
};

/// What aml-run can do besides running a job: an option of its own.
struct Command {
  std::string_view name;  ///< "show": --show
  bool takes_id = false;
  bool is_about_runs = false;              ///< concerns existing runs
  int (*answer)(const CommandLine& line);  ///< returns the exit status
};

/// Reads the words after the program's name; of several commands without an id the first one in the table counts.
/// Errors: invalid_argument, in one sentence.
[[nodiscard]] Result<CommandLine> read_command_line(std::span<const Command> commands, std::vector<std::string> words);

/// The text of --help.
[[nodiscard]] std::string help_text();

}  // namespace amldist::run
