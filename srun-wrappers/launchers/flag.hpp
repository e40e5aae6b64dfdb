// The flags of a launcher that people know, each with what becomes of it on Slurm. A table of them is the one truth: it
// reads the command line, `--list-flags` prints it, and the lists of the real tools' flags are compared with it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/result.hpp"
#include "base/text/text.hpp"

namespace amldist::launchers {

enum class FlagHandling {
  translated,  ///< becomes part of the srun line
  handed_on,   ///< makes the real launcher run, one on each node, which gets the flag
  ignored,     ///< has no effect here; reported in one line
  refused,     ///< would be misunderstood; the command ends with the reason
};

[[nodiscard]] std::string_view to_string(FlagHandling handling) noexcept;

struct Flag {
  std::string_view names;  ///< all spellings, separated by blanks: "-t --tee"; the last one is shown
  std::size_t values;      ///< words that follow it
  FlagHandling handling;
  std::string_view becomes;  ///< what it turns into, or the reason: a clause without a full stop
  /// What argparse takes for a value: "int", "float", with a "+" only 0 and above, "share" from 0 to 1, or words
  /// "a|b|c". Empty: any text.
  std::string_view type = {};
  /// Two flags of one group cannot be combined.
  std::string_view group = {};
  bool repeats = false;       ///< argparse: given again it adds; otherwise the last one counts
  bool takes_equals = false;  ///< "--name=value" is the same as "--name"
};

/// How a tool reads its command line.
struct Dialect {
  std::string_view tool;  ///< "torchrun"
  /// Python's argparse: a prefix that only one spelling has is taken, a word that looks like a flag is not a value, and
  /// a word that looks like a negative number, or has a blank, is not a flag.
  bool argparse = false;
  bool prefixes = false;  ///< a prefix stands for the flag if only one begins so; with argparse, too
  bool equals = true;     ///< --name=value
  bool attached = true;   ///< -n4
};

/// A flag as it was given.
struct GivenFlag {
  std::size_t flag;  ///< its index in the table
  std::string name;  ///< as written, without "=value"
  std::vector<std::string> values;

  [[nodiscard]] const std::string& value() const { return values.front(); }
};

struct Reading {
  std::vector<GivenFlag> flags;
  std::vector<std::string> program;  ///< from the first word that is not a flag on
};

/// Reads flags up to the program. Errors: invalid_argument: an unknown flag (with the nearest one), a missing value, an
/// abbreviation of several.
[[nodiscard]] Result<Reading> read_flags(const Dialect& dialect, std::span<const Flag> table,
                                         const std::vector<std::string>& words);

/// Whether `name` is one of the flag's spellings.
[[nodiscard]] bool has_name(const Flag& flag, std::string_view name);

/// "invalid value 'x' for --flag: REMEDY".
[[nodiscard]] Error invalid_value(const GivenFlag& given, std::string_view remedy);

/// A whole number of a flag. Errors name the flag and the limits.
[[nodiscard]] Result<std::uint32_t> number_of(const GivenFlag& given, std::uint32_t low, std::uint32_t high);

}  // namespace amldist::launchers
