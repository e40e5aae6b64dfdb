// The changes to a task's environment: an ordered list of variables to set and to remove.
//
// Translators make a patch; the plugin and the tools apply it. A patch is a value without I/O: `aml-dist explain`
// prints the same patch that slurmstepd applies and the tests compare.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace amldist {

/// Reads one variable of an environment: a task's, srun's, or a table in a test. nullopt: not set. An empty value
/// counts as set.
using EnvironmentReader = std::function<std::optional<std::string>(std::string_view name)>;

/// Longest "NAME=VALUE" that Linux accepts as one string, in bytes, including the terminating zero (MAX_ARG_STRLEN).
inline constexpr std::size_t longest_environment_string = 128UL * 1024;

/// Changes to an environment, in order of first mention. The last change to a name wins.
class EnvironmentPatch {
 public:
  struct Change {
    std::string name;
    std::optional<std::string> value;  ///< nullopt: remove
  };

  void set(std::string_view name, std::string value);
  void set(std::string_view name, std::uint64_t value) { set(name, std::to_string(value)); }
  void unset(std::string_view name);

  [[nodiscard]] const std::vector<Change>& changes() const noexcept { return changes_; }

  /// The value that the patch gives `name`; nullopt if the patch removes it or does not mention it.
  [[nodiscard]] std::optional<std::string_view> value_of(std::string_view name) const noexcept;
  [[nodiscard]] bool mentions(std::string_view name) const noexcept;

 private:
  Change& change_of(std::string_view name);

  std::vector<Change> changes_;
};

}  // namespace amldist
