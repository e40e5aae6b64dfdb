// What a task's environment gets so that its calls are recorded.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/text/environment.hpp"
#include "spank/server/step_server.hpp"
#include "spank/stepd/hang_watch.hpp"
#include "spank/stepd/node_start.hpp"

namespace amldist::spank {

/// The folder of the libraries that record: the configured one, else lib*/aml-dist of the plugin's own installation.
/// Empty: there is none.
[[nodiscard]] std::string find_trace_libraries(const std::string& configured);

/// Whether MPI may be what the processes talk over.
[[nodiscard]] bool uses_mpi(const launch::Spec& spec) noexcept;

/// Sets AMLDIST_TRACE, and for programs with MPI LD_PRELOAD, behind what the user has there. Removes what an outer
/// step left. Nothing is set where the plan has no trace.
void set_trace(const NodePlan& plan, const EnvironmentReader& environment, EnvironmentPatch& patch);

/// The line that tells the user what is loaded into his tasks, or why nothing is; nullopt without trace.
[[nodiscard]] std::optional<std::string> trace_note(const NodePlan& plan, const Handle& handle);

/// Why nobody watches for hangs although hang= asks for it; nullopt where somebody does.
[[nodiscard]] std::optional<std::string> unwatched_note(const NodePlan& plan, bool has_srun);

/// Where the recorders of the step's tasks may be: the folder that AMLDIST_TRACE_DIR names, seen from where the tasks
/// start, or the usual ones. They are the user's to look up.
[[nodiscard]] std::vector<std::string> recorder_roots(const Handle& handle, unsigned user);

/// What watches a step for hangs while its tasks run.
struct HangWatchers {
  std::unique_ptr<StepServer> stand_in;  ///< of rank 0's node
  std::unique_ptr<HangWatch> watch;
  std::shared_ptr<ExitedTasks> exited = {};
  std::vector<pid_t> tasks = {};  ///< processes that slurmstepd has started so far, in the order of their ranks
};

/// slurmstepd, for each of its tasks once all are forked: with the last one starts what watches this node's ranks, if
/// there is a hang=.
void watch_for_hangs(const NodeStart& node, const Handle& handle, HangWatchers& watchers);

}  // namespace amldist::spank
