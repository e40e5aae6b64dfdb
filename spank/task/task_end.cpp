#include "spank/task/task_end.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/os/answer_as_user.hpp"
#include "base/text/text.hpp"
#include "spank/slurm/slurm_api.hpp"
#include "spank/stepd/parameter_servers.hpp"
#include "spank/stepd/task_trace.hpp"
#include "spank/task/end_facts.hpp"
#include "step/messages/rank_state.hpp"
#include "step/messages/server_release.hpp"
#include "trace/diagnosis/last_call.hpp"
#include "trace/record/record_folder.hpp"
#include "trace/record/record_reader.hpp"

namespace amldist::spank {
namespace {

/// For reading one flight recorder and one exception, which takes a few milliseconds.
constexpr auto recorder_timeout = std::chrono::seconds(2);

/// What Slurm says of a task that has ended.
struct EndedTask {
  std::uint32_t wait_status = 0;
  std::optional<std::uint32_t> rank;  ///< nullopt: not known, or the task got no environment
  UserRights user;
  std::string node;
  std::uint64_t elapsed_ms = 0;  ///< since the step came to this node

  [[nodiscard]] bool failed() const { return step::is_failure(wait_status); }
};

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

std::optional<EndedTask> read_end(const NodeStart& node, const Handle& handle) {
  const auto status = handle.number(S_TASK_EXIT_STATUS, "S_TASK_EXIT_STATUS");
  const auto user = handle.number(S_JOB_UID, "S_JOB_UID");
  const auto group = handle.number(S_JOB_GID, "S_JOB_GID");
  if (!status || !user || !group) return std::nullopt;
  const auto elapsed = std::chrono::steady_clock::now() - node.begin;
  return EndedTask{
      .wait_status = *status,
      .rank = node.plan() != nullptr ? rank_of_ended_task(*node.plan(), handle) : std::nullopt,
      .user = {*user, *group},
      .node = handle.variable("SLURMD_NODENAME").value_or("unknown"),
      .elapsed_ms = static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(elapsed).count())};
}

/// Whether what the task's flight recorder says belongs into a report: the task failed; or it ended with status 0 and
/// may have left the others without MPI_Finalize or amldist_finalize(), which remove its recorder. Not in heterogeneous
/// steps, whose recorders are not named after Slurm's step.
bool recorder_counts(const NodePlan& plan, const EndedTask& task) {
  return plan.is_whole_step && task.rank && (task.failed() || plan.trace.on);
}

/// What the user's files say about a task that has ended.
struct UserAnswer {
  std::string last_call;  ///< empty: its flight recorder says nothing
  step::UserFindings findings;
  std::vector<std::string> states;  ///< texts of step/messages/rank_state.hpp, one of each recorder
};

/// Between the parts of an answer: the texts in it have no such character.
constexpr char part_separator = '\x1e';

/// Its recorder is there because a call has failed before.
bool has_finalized(const trace::Recording& recording) {
  if (recording.calls.empty()) return false;
  const trace::CallRecord& last = recording.calls.back();
  return last.operation == calls::Operation::finalize && last.state == trace::recorder_format::State::completed;
}

/// Those of PyTorch and NCCL stay after a good end, too. PyTorch's has told then that it was one, unless the process
/// left past Python's own end, as by os._exit(0). After a requeue there may be those of the earlier run.
std::vector<trace::Recording> recordings_of(std::span<const std::string> roots, const step::ErrorPlaces& places,
                                            bool failed) {
  constexpr std::uint64_t moment_ms = 1000;
  auto found = trace::recordings_of(roots, places.user, places.step, places.rank);
  std::erase_if(found,
                [&](const auto& each) { return std::cmp_greater(each.age_ms(), places.elapsed_ms + moment_ms); });
  const auto stays = [](const auto& each) {
    const bool has_told = each.source == "torch" && each.ending != trace::recorder_format::Ending::none;
    return has_told || each.source == "nccl" || has_finalized(each);
  };
  if (!failed) std::erase_if(found, stays);
  return found;
}

/// Of each recorder of a rank, under trace.
std::string texts_of(const std::vector<trace::Recording>& recordings, bool failed, std::size_t room) {
  std::string states;
  for (trace::Recording each : recordings) {
    each.writer = trace::Writer::gone;
    each.has_exited = !failed;
    const std::string state = step::to_rank_state(each, each.present_ns());
    if (states.size() + state.size() < room) states += part_separator + state;
  }
  return states;
}

/// Flight recorder and exception lie in a folder of the user's, so they are looked up and read with his rights: he may
/// have put a link, a FIFO or a file system of his own there. nullopt: not in time.
std::optional<UserAnswer> ask_as_user(const NodePlan& plan, const EndedTask& task, const Handle& handle) {
  if (!task.rank || !(task.failed() || recorder_counts(plan, task))) return UserAnswer();
  auto places = error_places(plan, handle, task.user, task.wait_status);
  places.rank = *task.rank;
  places.elapsed_ms = task.elapsed_ms;
  const auto roots = recorder_roots(handle, task.user.user);
  const auto read = [&] {
    const auto recordings =
        recorder_counts(plan, task) ? recordings_of(roots, places, task.failed()) : std::vector<trace::Recording>();
    std::string told = text::concat(
        {trace::last_call_of(recordings).value_or(""), "\n", task.failed() ? find_as_user(places).to_string() : ""});
    if (plan.trace.on)
      told +=
          texts_of(recordings, task.failed(), longest_answer_as_user - std::min(longest_answer_as_user, told.size()));
    return told;
  };
  const auto answer = answer_as_user(task.user, read, recorder_timeout);
  if (!answer) return std::nullopt;
  const auto parts = text::split(*answer, part_separator);
  const auto end = parts.front().find('\n');
  if (end == std::string::npos) return UserAnswer();
  std::string call(parts.front().substr(0, end));
  if (!trace::is_last_call(call)) call.clear();
  return UserAnswer{
      std::move(call), step::UserFindings::parse(parts.front().substr(end + 1)), {parts.begin() + 1, parts.end()}};
}

/// What srun is to hear when a task has ended: that it failed, or left the others without MPI_Finalize; or that this
/// node refused the step, and that the deaths which follow are no failures.
std::optional<step::FailureReport> report_of(const EndedTask& task, const NodePlan* plan, bool refused,
                                             const std::string& last_call, std::vector<step::Cause> causes) {
  step::FailureReport report;
  report.wait_status = task.wait_status;
  report.elapsed_ms = task.elapsed_ms;
  if (refused) {
    report.kind = step::FailureReport::Kind::refused;
    report.host = task.node;
    return task.failed() ? std::optional(report) : std::nullopt;
  }
  if (plan == nullptr || !task.rank || (!task.failed() && last_call.empty())) return std::nullopt;
  report.rank = *task.rank;
  report.local_rank = plan->step.placement.map.local_rank_of(*task.rank);
  report.host = plan->step.placement.host_of(*task.rank);
  report.last_call = last_call;
  report.causes = std::move(causes);
  return report;
}

/// What srun is to hear in a parameter-server step of a chief or worker that has ended.
std::optional<step::WorkerEnd> end_of_worker(const EndedTask& task, const launch::StepPlan& plan) {
  const std::uint32_t size = plan.placement.map.size();
  if (!task.rank || !has_servers(plan.spec, size)) return std::nullopt;
  const launch::TensorflowRoles roles{plan.spec.counts, size};
  const launch::TensorflowRole role = roles.role_of(*task.rank);
  if (role != launch::TensorflowRole::chief && role != launch::TensorflowRole::worker) return std::nullopt;
  return step::WorkerEnd{role == launch::TensorflowRole::chief, *task.rank, task.wait_status,
                         roles.count(launch::TensorflowRole::chief), roles.count(launch::TensorflowRole::worker)};
}

/// Sends until srun confirms, which slurmstepd waits for once at most: a srun that does not answer is not waited for
/// again (step::patience_with_srun), but told all the same. If it was only stopped, the servers' end depends on it.
/// Returns whether it has confirmed.
bool tell(StepdSession& session, std::string_view message) {
  if (session.srun_is_silent) send_without_reply(*session.node.srun, message);
  else session.srun_is_silent = !step::tell(*session.node.srun, message);
  return !session.srun_is_silent;
}

/// For what watches this node's ranks for hangs.
void note_exit(StepdSession& session, const EndedTask& task) {
  const NodePlan* const plan = session.node.plan();
  if (!session.hang_watchers.exited || plan == nullptr || !task.rank || task.failed()) return;
  const auto own = std::ranges::find(plan->ranks, *task.rank);
  session.hang_watchers.exited->add(static_cast<std::size_t>(own - plan->ranks.begin()));
}

/// Without memory srun hears nothing; ending a refused step must not depend on it.
void tell_srun(StepdSession& session, const Handle& handle) noexcept {
  if (!session.node.srun) return;
  try {
    const step::Token& token = session.node.srun->channel.token;
    const NodePlan* const plan = session.node.plan();
    const auto task = read_end(session.node, handle);
    if (!task) return;
    note_exit(session, *task);
    const bool refused = session.node.task_refused.load();
    const bool reads = plan != nullptr && !refused && !session.files_hang;
    const auto answer = reads ? ask_as_user(*plan, *task, handle) : UserAnswer();
    session.files_hang = session.files_hang || !answer;
    const UserAnswer said = answer.value_or(UserAnswer());
    const bool asks_why = plan != nullptr && !refused && task->failed();
    auto causes = asks_why ? causes_of(session, handle, task->node, task->wait_status, said.findings)
                           : std::vector<step::Cause>();
    for (const std::string& state : said.states)  // before the report, so that srun has them when it decides
      send_without_reply(*session.node.srun, to_datagram(step::Subject::last_state, state, token));
    if (const auto report = report_of(*task, plan, refused, said.last_call, std::move(causes))) {
      const bool heard = tell(session, report->to_datagram(token));
      session.refusal_is_heard = session.refusal_is_heard || (refused && heard);
    }
    const auto end = plan != nullptr ? end_of_worker(*task, plan->step) : std::nullopt;
    if (end) static_cast<void>(tell(session, end->to_datagram(token)));
  } catch (const std::exception&) {  // out of memory
  }
}

/// Where no node hears from srun, each ends the step: not all at once, since slurmctld tells all nodes of each request.
/// Node 0 goes first; the requests of the others then find no step.
void await_turn(const NodePlan* plan) noexcept {
  constexpr std::uint32_t most_nodes = 1000;
  constexpr long between_nodes_ns = 10'000'000;
  constexpr long second = 1'000'000'000;
  const long wait = plan != nullptr ? std::min(plan->node, most_nodes) * between_nodes_ns : 0;
  const timespec pause = {wait / second, wait % second};
  static_cast<void>(::nanosleep(&pause, nullptr));
}

}  // namespace

void finish_task(StepdSession& session, const Handle& handle) {
  tell_srun(session, handle);
  const NodePlan* const plan = session.node.plan();
  // Here, because after its tasks slurmstepd has no way to the step's output.
  if (plan != nullptr && ++session.ended_tasks >= plan->ranks.size()) session.node.stand_in.reset();
  // srun, or its stand-in, ends a step of which it knows that a node refuses it: one request, however many nodes do.
  if (!session.node.task_refused.load() || session.refusal_is_heard || session.step_ended) return;
  session.step_ended = true;
  const auto job_id = handle.number(S_JOB_ID, "S_JOB_ID");
  const auto step_id = handle.number(S_JOB_STEPID, "S_JOB_STEPID");
  if (!job_id || !step_id) return;
  // The sentence that says why is still on its way to srun, which hears no more once its step is being ended.
  constexpr timespec time_to_be_heard = {0, 500'000'000};
  static_cast<void>(::nanosleep(&time_to_be_heard, nullptr));
  await_turn(plan);
  // Tasks on this node never started; without this the others would wait for them to the end of their time limit.
  static_cast<void>(end_step(*job_id, *step_id));
}

}  // namespace amldist::spank
