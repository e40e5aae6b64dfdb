// The common part of the four launchers: a table of flags with their actions, --help, --dry-run, --list-flags.
#pragma once

#include <exception>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/result.hpp"
#include "launchers/flag.hpp"
#include "launchers/step_line.hpp"
#include "shared/exit_status.hpp"
#include "shared/terminal.hpp"

namespace amldist::launchers {

/// The state that every launcher collects while it reads its flags.
struct Base {
  StepLine line;
  std::vector<std::string> handed_on;  ///< flags for the real launcher, as written
  std::vector<std::string> slurm;      ///< --slurm
  bool help = false;
  bool version = false;
  bool dry_run = false;
  bool list_flags = false;
  bool json = false;
};

/// A flag and its action on a state `S` (a Base). Without a function it is only reported (ignored), passed on (handed)
/// or an error (refused).
template <typename S>
struct Row {
  Flag flag;
  Result<void> (*apply)(S& state, const GivenFlag& given) = nullptr;
};

/// For a flag without a value, and for one whose value is kept.
template <auto member, typename S>
Result<void> mark(S& state, const GivenFlag& /*given*/) {
  state.*member = true;
  return {};
}
template <auto member, typename S>
Result<void> keep(S& state, const GivenFlag& given) {
  state.*member = given.value();
  return {};
}

/// Flags that all launchers have and the real tools do not.
template <typename S>
std::vector<Row<S>> own_rows() {
  return {
      {{"--dry-run", 0, FlagHandling::translated, "prints the line instead of starting it"}, mark<&S::dry_run>},
      {{.names = "--slurm",
        .values = 1,
        .handling = FlagHandling::translated,
        .becomes = "the value is an option of srun: --slurm=--partition=gpu",
        .repeats = true},
       [](S& state, const GivenFlag& given) { return state.slurm.push_back(given.value()), Result<void>(); }},
      {{"--list-flags", 0, FlagHandling::translated, "prints this table"}, mark<&S::list_flags>},
      {{"--json", 0, FlagHandling::translated, "the table or the line, for programs"}, mark<&S::json>},
  };
}

/// A flag without an action, in the table of any launcher.
struct RowWithoutAction {
  Flag flag;
  template <typename S>
  operator Row<S>() const {  // NOLINT(google-explicit-constructor): an element of such a table
    return {flag, nullptr};
  }
};

inline RowWithoutAction ignored(std::string_view names, std::size_t values, std::string_view why,
                                std::string_view type = {}) {
  return {{names, values, FlagHandling::ignored, why, type}};
}
inline RowWithoutAction refused(std::string_view names, std::size_t values, std::string_view why) {
  return {{names, values, FlagHandling::refused, why}};
}

/// One table of several.
template <typename S>
std::vector<Row<S>> join_rows(std::initializer_list<std::vector<Row<S>>> parts) {
  std::vector<Row<S>> out;
  for (const auto& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

/// Runs the action of a flag. Errors: its own, or that it is refused.
[[nodiscard]] Result<void> apply_handling(Base& base, const Flag& flag, const GivenFlag& given, bool has_function);

/// The parts common to all lines: --slurm, the expansion of $RANK and the like, ending the step when one task
/// fails and at the first Ctrl-C.
/// Refuses to start a launcher in each of several tasks. Errors: invalid_argument.
[[nodiscard]] Result<void> finish_line(Base& base);

/// Starts, prints or describes, as the state says.
[[nodiscard]] int conclude(Base& base, std::string_view tool, std::span<const Flag> table, std::string_view help);

/// The flags of a table without their actions.
template <typename S>
std::vector<Flag> flags_of(const std::vector<Row<S>>& rows) {
  std::vector<Flag> flags;
  flags.reserve(rows.size());
  for (const Row<S>& row : rows) flags.push_back(row.flag);
  return flags;
}

/// Reads the flags in front of a program into the state. Returns the program's words.
template <typename S>
Result<std::vector<std::string>> read_into(S& state, const Dialect& dialect, const std::vector<Row<S>>& rows,
                                           const std::vector<std::string>& words) {
  const auto flags = flags_of(rows);
  auto reading = read_flags(dialect, flags, words);
  if (!reading) return reading.error();
  for (const GivenFlag& given : reading->flags) {
    const Row<S>& row = rows[given.flag];
    if (auto status = apply_handling(state, row.flag, given, row.apply != nullptr); !status) return status.error();
    if (row.apply == nullptr) continue;
    if (auto status = row.apply(state, given); !status) return status.error();
  }
  return std::move(reading->program);
}

/// One of the launchers.
template <typename S>
struct Tool {
  Dialect dialect;
  const char* help = nullptr;
  std::vector<Row<S>> rows;
  /// Called before the flags are read: defaults from the environment. May be null.
  Result<void> (*prepare)(S& state);
  /// Makes the line from what the flags have set; `words` is the whole command line.
  Result<void> (*translate)(S& state, const Tool& tool, std::vector<std::string> program,
                            const std::vector<std::string>& words);
};

/// Reads the command line into `state` and makes its line.
template <typename S>
Result<void> make_line(const Tool<S>& tool, S& state, const std::vector<std::string>& words) {
  if (tool.prepare != nullptr) {
    if (auto status = tool.prepare(state); !status) return status.error();
  }
  auto program = read_into(state, tool.dialect, tool.rows, words);
  if (!program) return program.error();
  if (state.help || state.version || state.list_flags) return {};
  if (program->empty()) return Error{Errc::invalid_argument, "there is no program to start (see --help)"};
  if (auto status = tool.translate(state, tool, std::move(*program), words); !status) return status.error();
  return state.line.instead.empty() ? finish_line(state) : Result<void>();
}

/// The main() of every launcher.
template <typename S>
int run_tool(const Tool<S>& tool, const std::vector<std::string>& words) {
  try {
    S state;
    if (auto status = make_line(tool, state, words); !status) {
      return commands::fail(
          {status.error().code, text::concat({"aml-", tool.dialect.tool, ": ", status.error().message})});
    }
    return conclude(state, tool.dialect.tool, flags_of(tool.rows), tool.help);
  } catch (const std::exception& problem) {
    commands::say(text::concat({"internal error: ", problem.what()}));
    return commands::exit_failed;
  }
}
template <typename S>
int run_tool(const Tool<S>& tool, int argc, char** argv) {
  return run_tool(tool, {argv + 1, argv + argc});
}

}  // namespace amldist::launchers
