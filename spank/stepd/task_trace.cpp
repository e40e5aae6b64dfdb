#include "spank/stepd/task_trace.hpp"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string_view>

#include "base/text/text.hpp"
#include "spank/stepd/program_file.hpp"
#include "trace/record/record_folder.hpp"
#include "trace/record/settings.hpp"

namespace amldist::spank {
namespace {

using text::concat;

constexpr std::string_view preloaded = "libamldist-mpitrace-preload.so";
constexpr std::string_view preload = "LD_PRELOAD";

bool is_folder(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

std::string preload_path(const NodePlan& plan) { return concat({plan.trace_libraries, "/", preloaded}); }

constexpr std::string_view nccl_part = "libnccl-profiler-amldist.so";
constexpr std::string_view nccl_variable = "NCCL_PROFILER_PLUGIN";

std::string nccl_path(const NodePlan& plan) { return concat({plan.trace_libraries, "/", nccl_part}); }

/// As the task sees it: in a container there may be none.
bool is_there(const std::string& path) { return ::access(path.c_str(), R_OK) == 0; }

/// LD_PRELOAD without what an outer step of ours has put there.
std::string without_ours(std::string_view list) {
  std::string rest;
  std::size_t begin = 0;
  while (begin < list.size()) {
    const auto end = std::min(list.find_first_of(": ", begin), list.size());
    const std::string_view each = list.substr(begin, end - begin);
    if (!each.empty() && !each.ends_with(preloaded)) rest += concat({rest.empty() ? "" : ":", each});
    begin = end + 1;
  }
  return rest;
}

/// NCCL loads one profiler: ours, which hands on to the user's.
void set_nccl_profiler(const NodePlan& plan, const EnvironmentReader& environment, EnvironmentPatch& patch) {
  const std::string before = environment(nccl_variable).value_or("");
  const bool is_ours = before.ends_with(nccl_part);  // an outer step left it
  const std::string users = is_ours ? environment(trace::variable::nccl_profiler).value_or("") : before;
  const bool loads = plan.trace.on && !plan.trace_libraries.empty() && is_there(nccl_path(plan));
  if (loads) {
    patch.set(nccl_variable, nccl_path(plan));
    if (!users.empty()) patch.set(trace::variable::nccl_profiler, users);
    else if (environment(trace::variable::nccl_profiler)) patch.unset(trace::variable::nccl_profiler);
  } else if (is_ours) {
    if (users.empty()) patch.unset(nccl_variable);
    else patch.set(nccl_variable, users);
    if (environment(trace::variable::nccl_profiler)) patch.unset(trace::variable::nccl_profiler);
  }
}

/// Watches for hangs should srun go.
std::unique_ptr<StepServer> start_stand_in(const NodePlan& plan, const Handle& handle, UserRights rights,
                                           const step::Token& token) {
  const auto job_id = handle.number(S_JOB_ID, "S_JOB_ID");
  const auto step_id = handle.number(S_JOB_STEPID, "S_JOB_STEPID");
  auto server = StepServer::open({0, 0}, token);
  if (!job_id || !step_id || !server) return nullptr;
  (*server)->serve({.job_id = *job_id,
                    .step_id = *step_id,
                    .tasks = plan.step.placement.map.size(),
                    .nodes = plan.step.placement.map.nodes(),
                    .trace = plan.trace,
                    .rights = rights,
                    .folder = handle.variable("PWD").value_or("/tmp")});
  return std::move(*server);
}

}  // namespace

std::string find_trace_libraries(const std::string& configured) {
  if (!configured.empty()) return configured;
  Dl_info own = {};
  static const char anchor = 0;
  if (::dladdr(&anchor, &own) == 0 || own.dli_fname == nullptr) return {};
  const std::string path = own.dli_fname;
  if (!path.starts_with('/')) return {};
  const std::string folder = path.substr(0, path.rfind('/'));
  const auto above = folder.rfind('/');
  std::string found = folder.substr(0, above == std::string::npos ? 0 : above) + "/aml-dist";
  return is_folder(found) ? found : std::string();
}

bool uses_mpi(const launch::Spec& spec) noexcept { return spec.kind == launch::Kind::mpi || spec.backend == "mpi"; }

void set_trace(const NodePlan& plan, const EnvironmentReader& environment, EnvironmentPatch& patch) {
  const std::string before = environment(preload).value_or("");
  const std::string others = without_ours(before);
  const bool loads =
      plan.trace.on && uses_mpi(plan.step.spec) && !plan.trace_libraries.empty() && is_there(preload_path(plan));
  const std::string after = loads ? concat({others, others.empty() ? "" : ":", preload_path(plan)}) : others;
  if (after.empty() && !before.empty()) patch.unset(preload);
  else if (after != before && (loads || before.find(preloaded) != std::string::npos)) patch.set(preload, after);
  set_nccl_profiler(plan, environment, patch);
  if (plan.trace.on) patch.set(trace::variable::trace, plan.step.step_name);
  else if (environment(trace::variable::trace)) patch.unset(trace::variable::trace);
}

namespace {
/// What the program may also call, and nobody records.
std::string_view unwatched_calls(launch::Kind kind) {
  if (kind == launch::Kind::pytorch) return ", those of torch.distributed.rpc are not";
  if (kind == launch::Kind::jax)
    return ", those of JAX between processors (jax_cpu_collectives_implementation) are not";
  return "";
}
}  // namespace

std::optional<std::string> trace_note(const NodePlan& plan, const Handle& handle) {
  if (!plan.trace.on) return std::nullopt;
  const std::string& step = plan.step.step_name;
  if (!uses_mpi(plan.step.spec)) {
    return concat(
        {"trace: calls of NCCL (2.23 and later), of libamldist, and of PyTorch's process groups where the package "
         "amldist is installed are recorded",
         unwatched_calls(plan.step.spec.kind), "; 'aml-dist trace ", step,
         "' on a node says who waits for whom there"});
  }
  if (plan.trace_libraries.empty()) {
    return "trace: MPI calls are not recorded, because lib/aml-dist is not installed beside the plugin: name it with "
           "trace_libraries= in plugstack.conf";
  }
  if (!is_there(preload_path(plan))) {
    return concat({"trace: MPI calls are not recorded, because there is no ", preload_path(plan),
                   " where the tasks run: mount it into the container"});
  }
  const std::string program = find_program(handle.program(), handle.environment());
  if (const auto why = why_not_preloaded(program); !why.empty()) {
    return concat({"trace: MPI calls are not recorded, because ", program, " ", why,
                   ": the system loads no other library into such a program"});
  }
  return concat({"trace: MPI calls are recorded by ", preload_path(plan), " in LD_PRELOAD; 'aml-dist trace ", step,
                 "' on a node says who waits for whom there"});
}

std::optional<std::string> unwatched_note(const NodePlan& plan, bool has_srun) {
  if (plan.trace.hang == 0 || (has_srun && plan.is_whole_step)) return std::nullopt;
  const std::string_view why = plan.is_whole_step ? "there is no srun that could say so and end the step"
                                                  : "each component of a heterogeneous step sees only its own ranks";
  return concat({"hang=", std::to_string(plan.trace.hang), ": this step is not watched for hangs, because ", why,
                 "; its calls are recorded for 'aml-dist trace'"});
}

std::vector<std::string> recorder_roots(const Handle& handle, unsigned user) {
  auto roots = trace::trace_roots(handle.variable(trace::variable::trace_folder).value_or(""), user);
  for (std::string& root : roots) {
    if (!root.starts_with('/')) root = concat({handle.variable("PWD").value_or(""), "/", root});
  }
  return roots;
}

void watch_for_hangs(const NodeStart& node, const Handle& handle, HangWatchers& watchers) {
  const NodePlan* const plan = node.plan();
  if (plan == nullptr || plan->trace.hang == 0 || !node.has_srun || !node.srun || !plan->is_whole_step) return;
  const auto process = handle.number(S_TASK_PID, "S_TASK_PID");
  watchers.tasks.push_back(process ? static_cast<pid_t>(*process) : 0);
  if (watchers.tasks.size() != plan->ranks.size()) return;
  const auto user = handle.number(S_JOB_UID, "S_JOB_UID");
  const auto group = handle.number(S_JOB_GID, "S_JOB_GID");
  if (!user || !group) return;
  if (plan->ranks.front() == 0)
    watchers.stand_in = start_stand_in(*plan, handle, {*user, *group}, node.srun->channel.token);
  watchers.exited = std::make_shared<ExitedTasks>(plan->ranks.size());
  watchers.watch = std::make_unique<HangWatch>(
      WatchedNode{.srun = *node.srun,
                  .rights = {*user, *group},
                  .roots = recorder_roots(handle, *user),
                  .step = plan->step.step_name,
                  .host = plan->host,
                  .ranks = plan->ranks,
                  .processes = watchers.tasks,
                  .exited = watchers.exited,
                  .memory_group = [&node](std::size_t task) { return memory_group_of(node.tasks.tasks.at(task)); },
                  .has_launchers = plan->step.spec.launch == launch::Launch::per_node,
                  .size = plan->step.placement.map.size(),
                  .seconds = plan->trace.hang,
                  .begin = node.begin,
                  .stand_in_port = watchers.stand_in ? watchers.stand_in->channel().port : std::uint16_t{0}});
}

}  // namespace amldist::spank
