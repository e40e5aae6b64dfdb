// All changes that aml-dist makes to one task's environment. The plugin applies them; `aml-dist explain` prints them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/environment.hpp"
#include "base/text/result.hpp"
#include "launch/option/spec.hpp"
#include "launch/placement/step_facts.hpp"
#include "launch/rendezvous/rendezvous.hpp"

namespace amldist::launch {

/// Everything about a step that its tasks on one node share. A value; const use is thread-safe.
struct StepPlan {
  Spec spec;
  Placement placement;
  Rendezvous rendezvous;
  std::string step_name;            ///< "JOB.STEP"
  std::string gloo_interface = {};  ///< for GLOO_SOCKET_IFNAME if the node's own name is loopback; else empty
  /// Settings that make NCCL and UCX use the verified ports, or use sockets on all nodes. The user's own settings win.
  std::vector<std::pair<std::string, std::string>> fabric_settings = {};
};

/// The patch for the task with this rank, which must be below the map's size. `inherited` reads the task's environment
/// before the patch. Errors: mismatch or limit, with a message for the user.
[[nodiscard]] Result<EnvironmentPatch> task_environment(const StepPlan& plan, std::uint32_t rank,
                                                        const EnvironmentReader& inherited);

/// Reads back what task_environment() set in a running task: all names that it can set, with their present values.
[[nodiscard]] EnvironmentPatch own_variables(const EnvironmentReader& environment);

/// Removes what an outer aml-dist step left in this environment; for a step of kind `none`. The user's own values stay.
/// Empty without an outer step's stamp.
[[nodiscard]] EnvironmentPatch without_outer_step(const EnvironmentReader& environment);

/// Whether SLURM_NTASKS_PER_NODE is what an outer aml-dist step set for its tasks. To srun it would be an option that
/// does not fit the step which it starts.
[[nodiscard]] bool has_outer_tasks_per_node(const EnvironmentReader& environment);

/// Names of the variables, of all kinds, that identify a task and its peers.
[[nodiscard]] std::span<const std::string_view> task_variables() noexcept;

/// Compares the counts that the user asserted with the step. The error gives both numbers.
[[nodiscard]] Result<void> check_counts(const Spec& spec, const TaskMap& map);

}  // namespace amldist::launch
