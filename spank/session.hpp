// What one process that loaded the plugin knows: srun, sbatch, salloc, slurmd or slurmstepd.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.hpp"
#include "core/spec.hpp"
#include "frameworks/task_environment.hpp"
#include "rendezvous/port_claim.hpp"
#include "site/site_policy.hpp"
#include "spank/fabric_plan.hpp"
#include "spank/listener.hpp"
#include "spank/shared_flag.hpp"
#include "spank/srun_link.hpp"

namespace amldist::spank {

/// The state between callbacks. SPANK calls them one after the other, so no lock is needed; slurmstepd's tasks see a
/// copy from the fork.
struct Session {
  SitePolicy policy;
  std::vector<std::string> complaints;  ///< what was skipped in the administrator's arguments

  /// The option's text, or the reason why it cannot even be kept; the last mention wins.
  std::optional<Result<std::string>> option;
  /// srun: whether its command line mentions the option with different values.
  bool mentions_differ = false;
  bool first_is_inherited = false;  ///< the text kept now came from sbatch or salloc, and may be overruled

  bool in_job = false;  ///< srun: the job was there before it, and goes on after the step

  std::optional<StepPlan> plan;      ///< slurmstepd: what its tasks get
  bool whole_step = true;            ///< slurmstepd: the plan's step is this component, not a heterogeneous one
  std::vector<PortClaim> claims;     ///< slurmstepd: ports that this node's ranks will listen on
  std::vector<std::string> notes;    ///< slurmstepd: lines for the user, told by rank 0
  std::optional<FabricPlan> fabric;  ///< slurmstepd: unless the policy is off
  bool refused_by_srun = false;      ///< slurmstepd: its tasks must not start, and the user knows why
  std::optional<Error> failure;      ///< slurmstepd: why its tasks must not start
  SharedFlag task_refused;           ///< slurmstepd: set by a task that could not be equipped
  bool step_ended = false;
  std::optional<SrunLink> srun;                 ///< slurmstepd: the way to the srun that started the step
  bool unheard = false;                         ///< slurmstepd: srun does not answer
  std::chrono::steady_clock::time_point start;  ///< slurmstepd: when the step came to this node
  std::unique_ptr<Listener> listener;           ///< srun: where the nodes are heard

  /// The parsed option; kind none when it was not given.
  [[nodiscard]] Result<Spec> spec() const;
  /// The same, or without an option the site's default kind for the partition.
  [[nodiscard]] Result<Spec> spec_in_partition(std::string_view partition) const;
  /// Whether no step can concern us: switched off, or neither an option nor a default.
  [[nodiscard]] bool is_idle() const noexcept { return policy.disabled || (!option && policy.default_kind.empty()); }
};

/// Keeps the option's text for later. Never fails: slurmstepd would only log it, and srun would echo the whole text.
void keep_option(Session& session, const char* text);

/// The value that sbatch or salloc handed on to this srun, nullopt without one. Slurm passes it in a variable whose
/// name ends in the plugin's name and the option's.
[[nodiscard]] std::optional<std::string> inherited_option();

}  // namespace amldist::spank
