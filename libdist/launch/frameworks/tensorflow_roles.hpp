// The role of each task of a TensorFlow step.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "launch/option/spec.hpp"

namespace amldist::launch {

/// In the order in which ranks take them.
enum class TensorflowRole { chief, worker, server, evaluator };

/// The role's name in TF_CONFIG: "ps" for a server.
[[nodiscard]] constexpr std::string_view to_string(TensorflowRole role) noexcept {
  constexpr std::string_view names[] = {"chief", "worker", "ps", "evaluator"};
  return names[static_cast<std::size_t>(role)];
}

/// Ranks take the roles chief, worker, ps, evaluator in this order.
class TensorflowRoles {
 public:
  /// `tasks`: number of tasks of the step; check_counts() has checked that the counts fit. worker_count unset: all
  /// remaining tasks are workers.
  constexpr TensorflowRoles(const CountAssertions& counts, std::uint32_t tasks) noexcept {
    const std::uint32_t chiefs = counts.chiefs.value_or(0);
    const std::uint32_t servers = counts.parameter_servers.value_or(0);
    const std::uint32_t evaluators = counts.evaluators.value_or(0);
    const std::uint32_t workers = counts.workers.value_or(tasks - chiefs - servers - evaluators);
    counts_ = {chiefs, workers, servers, evaluators};
  }

  [[nodiscard]] constexpr std::uint32_t count(TensorflowRole role) const noexcept {
    return counts_[static_cast<std::size_t>(role)];
  }

  /// Role of a rank of the step.
  [[nodiscard]] constexpr TensorflowRole role_of(std::uint32_t rank) const noexcept {
    std::size_t role = 0;
    while (role + 1 < counts_.size() && rank >= counts_[role]) rank -= counts_[role++];
    return static_cast<TensorflowRole>(role);
  }

 private:
  std::array<std::uint32_t, 4> counts_{};
};

}  // namespace amldist::launch
