// The provenance stamp: how a step tells what an outer aml-dist step left behind from what the user set by hand.
//
//   AMLDIST_STAMP=12.0 kind=pytorch nodes=4 map=(vector,(0,4,2)) MASTER_ADDR=10.0.0.1 MASTER_PORT=20017
//
// Every task carries it; one variable, because each one that slurmstepd writes costs every task microseconds. When a
// task starts another step, MASTER_ADDR with the value in the stamp is ours and stale; any other value was set by the
// user.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/environment.hpp"

namespace amldist {

inline constexpr std::string_view stamp_variable = "AMLDIST_STAMP";

/// A read or written stamp.
class Stamp {
 public:
  explicit Stamp(std::string step) : step_(std::move(step)) {}

  /// The stamp of the environment; nullopt without one or with one that cannot be read.
  [[nodiscard]] static std::optional<Stamp> read(const EnvironmentReader& environment);

  void add(std::string_view name, std::string_view value) { values_.emplace_back(name, value); }
  [[nodiscard]] std::string to_string() const;

  /// "JOB.STEP" that wrote it.
  [[nodiscard]] const std::string& step() const noexcept { return step_; }
  /// The value stamped under `name`; nullopt without one.
  [[nodiscard]] std::optional<std::string_view> value_of(std::string_view name) const noexcept;
  /// Whether the stamped step set `name` to exactly `value`.
  [[nodiscard]] bool wrote(std::string_view name, std::string_view value) const noexcept;

 private:
  std::string step_;
  std::vector<std::pair<std::string, std::string>> values_;
};

/// The value of `name` that the user set by hand: set, not empty, and not what the stamp says we wrote.
[[nodiscard]] std::optional<std::string> users_own(const EnvironmentReader& environment, std::string_view name);

}  // namespace amldist
