#include "spank/task/end_facts.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <ctime>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "base/text/text.hpp"
#include "fabric/facts/numbered_gpus.hpp"
#include "step/cause/task_cause.hpp"
#include "trace/record/record_folder.hpp"

namespace amldist::spank {
namespace {

/// In a container slurmstepd knows its tasks by other numbers than the kernel's log does.
bool has_kernels_process_numbers() {
  constexpr std::string_view first_namespace = "pid:[4026531836]";  // PROC_PID_INIT_INO of linux/proc_ns.h
  std::array<char, 64> name{};
  const ssize_t length = ::readlink("/proc/self/ns/pid", name.data(), name.size());
  return length > 0 && std::string_view(name.data(), static_cast<std::size_t>(length)) == first_namespace;
}

std::uint32_t process_number(const Handle& handle) {
  const auto pid = handle.number(S_TASK_PID, "S_TASK_PID");
  return pid && has_kernels_process_numbers() ? *pid : 0;
}

std::uint64_t microseconds_of(clockid_t clock) {
  constexpr std::uint64_t million = 1'000'000;
  constexpr std::uint64_t thousand = 1000;
  timespec now = {};
  ::clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * million + static_cast<std::uint64_t>(now.tv_nsec) / thousand;
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
                    .now_us = {microseconds_of(CLOCK_MONOTONIC), microseconds_of(CLOCK_MONOTONIC_RAW)},
                    .gpus = own_gpus(handle),
                    .address_space = address_space(handle),
                    .user = std::move(findings)};
  if (end.group) end.memory = read_memory_use(*end.group);
  return find_causes(end);
}

}  // namespace amldist::spank
