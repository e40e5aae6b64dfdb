// The stamp: a step's record of what aml-dist set, to tell values of an outer step from values that the user set.
//
//   AMLDIST_STAMP=12.0 kind=pytorch nodes=4 map=(vector,(0,4,2)) MASTER_ADDR=10.0.0.1 MASTER_PORT=20017
//
// Every task has it. It is one variable, because each variable that slurmstepd writes costs every task microseconds. If
// a task starts another step, a MASTER_ADDR equal to the one in the stamp is stale; any other value is the user's.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/environment.hpp"

namespace amldist::launch {

inline constexpr std::string_view stamp_variable = "AMLDIST_STAMP";

/// A stamp, read or to be written.
class Stamp {
 public:
  explicit Stamp(std::string step) : step_(std::move(step)) {}

  /// The stamp of the environment; nullopt if there is none or it is malformed.
  [[nodiscard]] static std::optional<Stamp> read(const EnvironmentReader& environment);

  void add(std::string_view name, std::string_view value) { values_.emplace_back(name, value); }
  [[nodiscard]] std::string to_string() const;

  /// "JOB.STEP" of the step that wrote it.
  [[nodiscard]] const std::string& step() const noexcept { return step_; }
  /// The value stamped under `name`; nullopt if the stamp does not have it.
  [[nodiscard]] std::optional<std::string_view> value_of(std::string_view name) const noexcept;
  /// Whether the stamped step set `name` to exactly `value`.
  [[nodiscard]] bool wrote(std::string_view name, std::string_view value) const noexcept;

 private:
  std::string step_;
  std::vector<std::pair<std::string, std::string>> values_;
};

/// The value of `name` if the user set it: set, not empty, and not the one in the stamp.
[[nodiscard]] std::optional<std::string> users_own(const EnvironmentReader& environment, std::string_view name);

}  // namespace amldist::launch
