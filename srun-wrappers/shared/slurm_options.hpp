// The options of sbatch and srun that the commands pass on: which take a value, their other names, and which a step can
// have.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/result.hpp"

namespace amldist::commands {

enum class Argument { none, optional, required };

/// Where an option has a meaning.
enum class Scope {
  job,   ///< sbatch alone: a step has no partition, account, array
  step,  ///< sbatch and srun
};

struct SlurmOption {
  std::string_view name;  ///< without the dashes
  char letter = '\0';     ///< short form, or '\0'
  Argument argument = Argument::required;
  Scope scope = Scope::step;
};

/// An option as given, by its long name.
struct GivenOption {
  std::string name;
  std::optional<std::string> value;

  /// "--name=value" or "--name".
  [[nodiscard]] std::string to_word() const;
  friend bool operator==(const GivenOption&, const GivenOption&) = default;
};

/// A list of options in which each name occurs once; the last mention of a name counts.
class SlurmOptions {
 public:
  void set(std::string_view name, std::optional<std::string> value = std::nullopt);
  void erase(std::string_view name);
  /// Everything in `others` is set here.
  void merge(const SlurmOptions& others);

  [[nodiscard]] const GivenOption* find(std::string_view name) const;
  [[nodiscard]] bool has(std::string_view name) const { return find(name) != nullptr; }
  /// The value of `name`, "" if it is not given or has no value.
  [[nodiscard]] std::string_view value_of(std::string_view name) const;
  [[nodiscard]] const std::vector<GivenOption>& all() const noexcept { return options_; }

 private:
  std::vector<GivenOption> options_;
};

[[nodiscard]] std::span<const SlurmOption> slurm_options() noexcept;
/// By its long name; nullptr if not known here (for example an option of another plugin).
[[nodiscard]] const SlurmOption* find_slurm_option(std::string_view name) noexcept;

/// The other name that sbatch has for it.
[[nodiscard]] std::vector<std::string_view> other_names_of(const SlurmOption& option);

}  // namespace amldist::commands
