#include "spank/task/end_facts.hpp"

#include <sys/wait.h>

#include <array>
#include <chrono>
#include <csignal>
#include <limits>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "base/text/text.hpp"
#include "fabric/facts/numbered_gpus.hpp"
#include "step/cause/task_cause.hpp"
#include "trace/record/record_folder.hpp"

namespace amldist::spank {
namespace {

std::uint32_t process_number(const Handle& handle) {
  const auto pid = handle.number(S_TASK_PID, "S_TASK_PID");
  return pid && step::has_kernels_process_numbers() ? *pid : 0;
}

/// Slurm sets or removes this variable for each step. SLURM_JOB_GPUS it leaves as the user exported it: that would tell
/// of other users' GPUs.
std::vector<std::string> own_gpus(const Handle& handle) {
  const auto list = handle.variable("SLURM_STEP_GPUS");
  if (!list) return {};
  return fabric::addresses_of(fabric::read_numbered_gpus(), fabric::parse_gpu_list(*list));
}

/// The limit that srun hands on; nullopt: none.
std::optional<std::uint64_t> address_space(const Handle& handle) {
  constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();
  const auto limit = text::to_number(handle.variable("SLURM_RLIMIT_AS").value_or(""), none);
  return limit == none ? std::nullopt : limit;
}

/// A task may be reaped before the kernel has written which process it killed.
void wait_for_kernels_line(StepdSession& session, step::TaskEnd& end) {
  constexpr std::chrono::milliseconds pause{5};
  while (session.patience_with_kernel >= pause && lacks_kernels_line(end)) {
    std::this_thread::sleep_for(pause);
    session.patience_with_kernel -= pause;
    end.log = session.kernel_log.read();
  }
}

}  // namespace

step::ErrorPlaces error_places(const NodePlan& plan, const Handle& handle, const UserRights& user,
                               std::uint32_t wait_status) {
  const int status = static_cast<int>(wait_status);
  return {.roots = trace::trace_roots({}, user.user),
          .step = plan.step.step_name,
          .user = user.user,
          .elastic_file = handle.variable("TORCHELASTIC_ERROR_FILE").value_or(""),
          .folder = handle.variable("PWD").value_or(""),
          .had_bus_error = WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS};
}

std::vector<step::Cause> causes_of(StepdSession& session, const Handle& handle, const std::string& host,
                                   std::uint32_t wait_status, step::UserFindings findings) {
  const auto local = handle.number(S_TASK_ID, "S_TASK_ID");
  step::TaskEnd end{.wait_status = wait_status,
                    .pid = process_number(handle),
                    .host = host,
                    .group = memory_group_of(local ? session.node.tasks.tasks.at(*local) : nullptr),
                    .log_was_read = session.kernel_log.is_open(),
                    .log = session.kernel_log.read(),
                    .now_us = step::kernel_clocks_us(),
                    .gpus = own_gpus(handle),
                    .address_space = address_space(handle),
                    .user = std::move(findings)};
  if (end.group) end.memory = read_memory_use(*end.group);
  wait_for_kernels_line(session, end);
  return find_causes(end);
}

}  // namespace amldist::spank
