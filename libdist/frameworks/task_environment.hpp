// The whole change that aml-dist makes to one task's environment. The plugin writes it, `aml-dist explain` prints it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/environment.hpp"
#include "core/result.hpp"
#include "core/spec.hpp"
#include "placement/step_facts.hpp"
#include "rendezvous/rendezvous.hpp"

namespace amldist {

/// Everything about a step that its tasks on one node share. A value; const use is thread-safe.
struct StepPlan {
  Spec spec;
  Placement placement;
  Rendezvous rendezvous;
  std::string step_name;            ///< "JOB.STEP"
  std::string gloo_interface = {};  ///< for GLOO_SOCKET_IFNAME where the node's own name is loopback; else empty
  /// What makes NCCL and UCX use the ports that were verified, or agree on sockets. What the user has set wins.
  std::vector<std::pair<std::string, std::string>> fabric_settings = {};
};

/// The patch for the task with this rank, below the map's size. `inherited` reads the task's environment as it would be
/// without us. Errors: mismatch or limit, in a sentence for the user.
[[nodiscard]] Result<EnvironmentPatch> task_environment(const StepPlan& plan, std::uint32_t rank,
                                                        const EnvironmentReader& inherited);

/// Reads back what task_environment() gave a running task: every name it can set, with the value it has now.
[[nodiscard]] EnvironmentPatch own_variables(const EnvironmentReader& environment);

/// Removes what an outer step of aml-dist left in this environment, for a step that is to have none of it. What the
/// user set by hand stays. Empty without an outer step's stamp.
[[nodiscard]] EnvironmentPatch without_outer_step(const EnvironmentReader& environment);

/// Names of the variables that tell a task who it is and where its peers are, of all kinds.
[[nodiscard]] std::span<const std::string_view> task_variables() noexcept;

/// Checks the counts that the user asserted against the step. The error says both numbers.
[[nodiscard]] Result<void> check_counts(const Spec& spec, const TaskMap& map);

}  // namespace amldist
