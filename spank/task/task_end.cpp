#include "spank/task/task_end.hpp"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <exception>

#include "base/os/answer_as_user.hpp"
#include "base/os/file_descriptor.hpp"
#include "base/text/text.hpp"
#include "spank/slurm/slurm_api.hpp"
#include "spank/stepd/parameter_servers.hpp"
#include "spank/stepd/task_trace.hpp"
#include "step/messages/server_release.hpp"
#include "trace/diagnosis/last_call.hpp"
#include "trace/record/record_folder.hpp"

namespace amldist::spank {
namespace {

/// For reading one flight recorder, which takes a few milliseconds.
constexpr auto recorder_timeout = std::chrono::seconds(2);

/// The rank of a task that has ended, from slurmstepd itself. In a heterogeneous step only SLURM_PROCID counts over all
/// components; Slurm sets it for the ended task (for TaskEpilog) before it calls us.
std::optional<std::uint32_t> rank_of_ended_task(const NodePlan& plan, const Handle& handle) {
  const std::uint32_t size = plan.step.placement.map.size();
  if (plan.is_whole_step) {
    const auto rank = handle.number(S_TASK_GLOBAL_ID, "S_TASK_GLOBAL_ID");
    return rank && *rank < size ? std::optional(*rank) : std::nullopt;
  }
  const auto procid = text::to_number(handle.variable("SLURM_PROCID").value_or(""), size - 1);
  return procid ? std::optional(static_cast<std::uint32_t>(*procid)) : std::nullopt;
}

/// What a failed task's flight recorder says that it did last; empty: not known. The recorder lies in a folder of the
/// user's, so it is read with his rights: he may have put a link, a FIFO or a file system of his own there. Not for
/// heterogeneous steps, whose recorders are not named after Slurm's step.
std::string last_call(StepdSession& session, const NodePlan& plan, const Handle& handle, std::uint32_t rank,
                      std::string_view source = {}) {
  const auto user = handle.number(S_JOB_UID, "S_JOB_UID");
  const auto group = handle.number(S_JOB_GID, "S_JOB_GID");
  if (session.recorders_hang || !plan.is_whole_step || !user || !group) return {};
  const auto read = [&] {
    return trace::last_call_of(trace::trace_roots({}, *user), *user, plan.step.step_name, rank, source).value_or("");
  };
  const auto answer = answer_as_user({*user, *group}, read, recorder_timeout);
  session.recorders_hang = !answer;
  return answer && trace::is_last_call(*answer) ? *answer : std::string();
}

/// Whether a user's folder, named by its whole path, may hold a file. Root must neither follow a link of his nor wait
/// for a file system of his, so it enters neither: openat2(2). True where the kernel does not offer that.
bool may_hold(const std::string& folder, const std::string& file) {
  const std::size_t above = folder.rfind('/');
  const FileDescriptor parent(::open(folder.substr(0, above).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!parent) return false;
  open_how how = {};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV;
  const std::string path = text::concat({folder.substr(above + 1), "/", file});
  const FileDescriptor found(static_cast<int>(::syscall(SYS_openat2, parent.get(), path.c_str(), &how, sizeof how)));
  return found || errno == ENOSYS || errno == EPERM;
}

/// Whether a task that ended with status 0 may have left the others without MPI_Finalize, which removes its recorder.
/// Asked first, because reading as the user takes a millisecond or two for each task.
bool may_be_unfinished(const NodePlan& plan, const Handle& handle, std::uint32_t rank) {
  const auto user = handle.number(S_JOB_UID, "S_JOB_UID");
  if (!plan.trace.on || !uses_mpi(plan.step.spec) || !user) return false;
  const std::string file = text::concat({plan.step.step_name, "/", std::to_string(rank), ".mpi.trace"});
  return std::ranges::any_of(trace::trace_roots({}, *user),
                             [&](const std::string& root) { return may_hold(root, file); });
}

/// What srun is to hear when a task has ended: that it failed, or left the others without MPI_Finalize; or that this
/// node refused the step, and that the deaths which follow are no failures.
std::optional<step::FailureReport> report_of_end(StepdSession& session, const Handle& handle) {
  const auto status = handle.number(S_TASK_EXIT_STATUS, "S_TASK_EXIT_STATUS");
  if (!status) return std::nullopt;
  const bool failed = step::is_failure(*status);
  step::FailureReport report;
  report.wait_status = *status;
  report.elapsed_ms = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - session.start).count());
  if (session.task_refused.load()) {
    if (!failed) return std::nullopt;
    report.kind = step::FailureReport::Kind::refused;
    report.host = handle.variable("SLURMD_NODENAME").value_or("unknown");
    return report;
  }
  const NodePlan* const plan = session.plan();
  const auto rank = plan != nullptr ? rank_of_ended_task(*plan, handle) : std::nullopt;
  if (!rank || (!failed && !may_be_unfinished(*plan, handle, *rank))) return std::nullopt;
  report.rank = *rank;
  report.local_rank = plan->step.placement.map.local_rank_of(*rank);
  report.host = plan->step.placement.host_of(*rank);
  report.last_call = last_call(session, *plan, handle, *rank, failed ? "" : "mpi");
  return failed || !report.last_call.empty() ? std::optional(report) : std::nullopt;
}

/// Tells srun, in a parameter-server step, that a chief or worker has ended. A srun that does not answer is not waited
/// for again, but told all the same: if it was only stopped, the servers' end depends on it.
void report_worker(StepdSession& session, const Handle& handle) {
  const NodePlan* const plan = session.plan();
  if (plan == nullptr || !has_servers(plan->step)) return;
  const auto rank = rank_of_ended_task(*plan, handle);
  const auto status = handle.number(S_TASK_EXIT_STATUS, "S_TASK_EXIT_STATUS");
  if (!rank || !status) return;
  const launch::TensorflowRoles roles = roles_of(plan->step);
  const launch::TensorflowRole role = roles.role_of(*rank);
  if (role != launch::TensorflowRole::chief && role != launch::TensorflowRole::worker) return;
  const step::WorkerEnd end{role == launch::TensorflowRole::chief, *rank, *status,
                            roles.count(launch::TensorflowRole::chief), roles.count(launch::TensorflowRole::worker)};
  const std::string datagram = end.to_datagram(session.srun->channel.token);
  if (session.srun_is_silent) send_without_reply(*session.srun, datagram);
  else session.srun_is_silent = !tell(*session.srun, datagram);
}

/// Without memory srun hears nothing; ending a refused step must not depend on it.
void tell_srun(StepdSession& session, const Handle& handle) noexcept {
  if (!session.srun) return;
  try {
    if (const auto report = report_of_end(session, handle)) send_report(*session.srun, *report);
    report_worker(session, handle);
  } catch (const std::exception&) {  // out of memory
  }
}

}  // namespace

void finish_task(StepdSession& session, const Handle& handle) {
  tell_srun(session, handle);
  const NodePlan* const plan = session.plan();
  // Here, because after its tasks slurmstepd has no way to the step's output.
  if (plan != nullptr && ++session.ended_tasks >= plan->ranks.size()) session.stand_in.reset();
  if (!session.task_refused.load() || session.step_ended) return;
  session.step_ended = true;
  const auto job_id = handle.number(S_JOB_ID, "S_JOB_ID");
  const auto step_id = handle.number(S_JOB_STEPID, "S_JOB_STEPID");
  if (!job_id || !step_id) return;
  // The sentence that says why is still on its way to srun, which hears no more once its step is being ended.
  constexpr timespec time_to_be_heard = {0, 500'000'000};
  static_cast<void>(::nanosleep(&time_to_be_heard, nullptr));
  // Tasks on this node never started; without this the others would wait for them to the end of their time limit.
  static_cast<void>(end_step(*job_id, *step_id));
}

}  // namespace amldist::spank
