// What slurmstepd knows between two callbacks. SPANK calls one after the other: no lock is needed.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/os/shared_atomic.hpp"
#include "spank/server/step_server.hpp"
#include "spank/slurm/step_request.hpp"
#include "spank/stepd/hang_watch.hpp"
#include "spank/stepd/node_plan.hpp"
#include "spank/stepd/start_gate.hpp"
#include "step/messages/srun_link.hpp"

namespace amldist::spank {

/// Its tasks see a copy, made by the fork; only task_refused is shared with them.
struct StepdSession {
  StepRequest request;

  PlanOutcome outcome;                          ///< of plan_step()
  std::optional<step::SrunLink> srun;           ///< the way to srun or its stand-in; nullopt: there is no way
  bool has_srun = true;                         ///< false: it had ended before the step, and a stand-in answers
  std::chrono::steady_clock::time_point start;  ///< when the step came to this node
  std::optional<StartGate> gate;                ///< holds the tasks until every node has reported; nullopt: none does
  SharedAtomic<bool> task_refused;              ///< a task did not get its environment, and must not start

  std::unique_ptr<StepServer> stand_in;   ///< on one node: where no srun waits, or under hang= beside it
  ServedStep served;                      ///< by a stand-in from the beginning on
  std::unique_ptr<HangWatch> hang_watch;  ///< under hang=, once the tasks are there
  std::uint32_t ended_tasks = 0;

  bool step_ended = false;      ///< this node has asked slurmctld to end the step
  bool srun_is_silent = false;  ///< srun did not answer in time: it is not waited for again
  bool recorders_hang = false;  ///< a flight recorder could not be read in time: no other is tried

  /// nullptr where the tasks get no environment.
  [[nodiscard]] const NodePlan* plan() const noexcept { return std::get_if<NodePlan>(&outcome); }
};

}  // namespace amldist::spank
