// The srun line made from a launcher's command: shown with --dry-run, else started.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/text/result.hpp"
#include "shared/slurm_options.hpp"

namespace amldist::launchers {

struct StepLine {
  std::vector<std::pair<std::string, std::string>> environment;  ///< set for srun, which passes it on
  commands::SlurmOptions srun;
  std::string option;                ///< after --aml-dist=
  std::vector<std::string> words;    ///< the program and its arguments
  bool binds_nothing = false;        ///< as the real launcher: a process may use all processors of its node's step
  bool expand = false;               ///< through `aml-dist exec`, which expands $LOCAL_RANK and the like
  std::vector<std::string> folders;  ///< made before srun starts
  std::vector<std::string> notes;    ///< printed before srun starts, a sentence each
  /// The real tool, to be started instead of srun; empty: srun.
  std::vector<std::string> instead;

  void set_variable(std::string name, std::string value);
  void add_key(std::string_view key);  ///< ",key" of the option
  void note(std::string sentence) { notes.push_back(std::move(sentence)); }

  /// The words of the command that is started.
  [[nodiscard]] std::vector<std::string> command() const;
  /// One line for bash: assignments and the command.
  [[nodiscard]] std::string to_line() const;
};

/// Becomes srun (or the real tool); returns only on failure, with the exit status.
[[nodiscard]] int start(const StepLine& line);

/// The interpreter that the real launchers would use: $PYTHON_EXEC, python or python3, whichever exists.
[[nodiscard]] std::string python();

}  // namespace amldist::launchers
