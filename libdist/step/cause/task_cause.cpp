#include "step/cause/task_cause.hpp"

#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <csignal>

#include "base/text/text.hpp"

namespace amldist::step {
namespace {

using text::concat;

constexpr std::uint64_t second_us = 1'000'000;
/// A rank fails because of a killed child once it has waited for it.
constexpr std::uint64_t since_a_child_was_killed = 60 * second_us;
constexpr std::uint64_t since_the_task_was_killed = 5 * second_us;
constexpr std::uint64_t since_a_device_failed = 10 * second_us;
constexpr std::size_t most_causes = 3;

bool ended_by(const TaskEnd& end, int signal) {
  const int status = static_cast<int>(end.wait_status);
  return WIFSIGNALED(status) ? WTERMSIG(status) == signal : WEXITSTATUS(status) == 128 + signal;
}

/// The kernel stamps its log with a clock of its own. On some machines that is the clock that time servers correct, on
/// others the raw one: over months they differ by hours. A record is as old as the nearer of
/// the two says that is not behind it.
std::uint64_t age_of(std::uint64_t time_us, const TaskEnd& end) {
  std::uint64_t age = ~std::uint64_t{0};
  for (const std::uint64_t now : end.now_us)
    if (now + second_us >= time_us) age = std::min(age, now > time_us ? now - time_us : 0);
  return age;
}

// ---- memory ----

bool is_of_step(std::string_view group) { return group.find("/step_") != std::string_view::npos; }

bool is_in(std::string_view group, std::string_view outer) {
  return group.starts_with(outer) && (group.size() == outer.size() || group[outer.size()] == '/');
}

/// Whether the kernel killed this task, or a process of it.
bool concerns(const OomKill& kill, const TaskEnd& end) {
  const std::uint64_t age = age_of(kill.time_us, end);
  if (end.pid != 0 && kill.pid == end.pid) return true;
  if (!end.group || kill.group.empty() || !is_in(kill.group, end.group->path)) return false;
  if (is_of_step(end.group->path)) return age <= since_a_child_was_killed;
  return ended_by(end, SIGKILL) && age <= since_the_task_was_killed;  // others are in that group, too
}

const OomKill* last_of(const std::vector<OomKill>& kills, const TaskEnd& end) {
  const auto found =
      std::find_if(kills.rbegin(), kills.rend(), [&](const OomKill& kill) { return concerns(kill, end); });
  return found != kills.rend() ? &*found : nullptr;
}

/// The kernel's own count, where its log has nothing: it may be closed, or flooded.
bool was_counted(const TaskEnd& end) {
  return end.group && is_of_step(end.group->path) && end.memory && end.memory->kills > 0;
}

/// "the step may use 300 GiB on this node and used it".
std::string describe_limit(const OomKill* kill, const TaskEnd& end) {
  const bool of_node = kill != nullptr && kill->is_of_node;
  if (of_node) return concat({end.host, " had no memory left"});
  if (!end.memory || !end.memory->limit) return "the limit of its cgroup was reached";
  return concat(
      {"the ", end.memory->whose, " may use ", describe_bytes(*end.memory->limit), " on this node and used it"});
}

std::string describe_process(const OomKill& kill) {
  return concat({std::to_string(kill.pid), " ", kill.name, " (", describe_bytes(kill.bytes), ")"});
}

std::string describe_memory(const OomKill* kill, const TaskEnd& end) {
  const std::string limit = describe_limit(kill, end);
  return kill == nullptr ? limit : concat({limit, "; its largest process was ", describe_process(*kill)});
}

/// "12 s before", "41 min before".
std::string describe_age(std::uint64_t age_us) {
  constexpr std::uint64_t seconds_in_minute = 60;
  const std::uint64_t seconds = age_us / second_us;
  return seconds < 2 * seconds_in_minute ? concat({std::to_string(seconds), " s before"})
                                         : concat({std::to_string(seconds / seconds_in_minute), " min before"});
}

/// Whether it is certain that the kernel did not kill the task for want of memory.
bool memory_was_enough(const TaskEnd& end) {
  const bool was_not_counted = end.group && is_of_step(end.group->path) && end.memory && end.memory->kills == 0;
  return was_not_counted || (end.log_was_read && end.pid != 0);
}

std::optional<Cause> find_memory(const TaskEnd& end) {
  const auto kills = find_oom_kills(end.log);
  const OomKill* const kill = last_of(kills, end);
  const bool is_old = kill == nullptr && std::ranges::any_of(kills, [&](const OomKill& each) {
                        return end.group && is_in(each.group, end.group->path);
                      });
  if (kill != nullptr || (was_counted(end) && !is_old))
    return Cause{Cause::Kind::out_of_memory, clean_cause(describe_memory(kill, end))};
  if (!ended_by(end, SIGKILL) || !memory_was_enough(end)) return std::nullopt;
  return Cause{Cause::Kind::killed,
               "SIGKILL came from outside and not for want of memory: scancel, a person or a program sent it"};
}

// ---- devices ----

bool is_of_this_step(const NodeEvent& event, const TaskEnd& end) {
  if (event.kind == NodeEvent::Kind::gpu) return std::ranges::find(end.gpus, event.device) != end.gpus.end();
  return event.kind != NodeEvent::Kind::gpu_switch || !end.gpus.empty();
}

std::string describe_event(const NodeEvent& event, const TaskEnd& end) {
  const std::uint64_t seconds = age_of(event.time_us, end) / second_us;
  const std::string when =
      seconds <= 1 ? std::string(" in that second") : concat({" ", std::to_string(seconds), " s before"});
  const bool is_port = event.kind == NodeEvent::Kind::port;
  return concat(
      {"the kernel reports ", event.what, when, ": ", is_port ? "see 'aml-dist check' on " : "drain ", end.host});
}

/// The first of the recent events: what follows may be its consequence. `of_port`: of the network, or of all else.
std::optional<Cause> find_event(const std::vector<NodeEvent>& events, const TaskEnd& end, bool of_port) {
  for (const NodeEvent& event : events) {
    if (age_of(event.time_us, end) > since_a_device_failed || !is_of_this_step(event, end)) continue;
    if ((event.kind == NodeEvent::Kind::port) != of_port) continue;
    return Cause{of_port ? Cause::Kind::link : Cause::Kind::unhealthy, clean_cause(describe_event(event, end))};
  }
  return std::nullopt;
}

// ---- limits ----

std::optional<Cause> find_limit(const TaskEnd& end) {
  if (!end.address_space || (!ended_by(end, SIGABRT) && !ended_by(end, SIGSEGV))) return std::nullopt;
  return Cause{Cause::Kind::fact,
               concat({"its address space is limited to ", describe_bytes(*end.address_space), " (ulimit -v)"})};
}

}  // namespace

std::optional<Cause> find_lost_process(const TaskEnd& end) {
  if (!end.group || !is_of_step(end.group->path)) return std::nullopt;
  const auto kills = find_oom_kills(end.log);
  const auto kill = std::find_if(kills.rbegin(), kills.rend(), [&](const OomKill& each) {
    return (end.pid == 0 || each.pid != end.pid) && is_in(each.group, end.group->path);
  });
  const bool is_known = kill != kills.rend();
  if (!is_known && !was_counted(end)) return std::nullopt;
  const std::string which =
      is_known ? concat({"its process ", describe_process(*kill), " ", describe_age(age_of(kill->time_us, end))})
               : std::string("a process of it");
  return Cause{Cause::Kind::lost_process, clean_cause(concat({"the kernel killed ", which, ", for want of memory: ",
                                                              describe_limit(is_known ? &*kill : nullptr, end)}))};
}

bool lacks_kernels_line(const TaskEnd& end) {
  if (!end.log_was_read || !was_counted(end)) return false;
  const auto kills = find_oom_kills(end.log);
  const auto told =
      std::ranges::count_if(kills, [&](const OomKill& each) { return is_in(each.group, end.group->path); });
  return static_cast<std::uint64_t>(told) < end.memory->kills;
}

std::vector<Cause> find_causes(const TaskEnd& end) {
  const auto events = find_node_events(end.log);
  std::vector<Cause> out;
  const auto add = [&](const std::optional<Cause>& cause) {
    const auto same = [&](const Cause& each) { return each.kind == cause->kind; };
    if (cause && out.size() < most_causes && std::ranges::none_of(out, same)) out.push_back(*cause);
  };
  add(find_memory(end));
  if (out.empty() || out.front().kind != Cause::Kind::out_of_memory) add(find_lost_process(end));
  add(find_event(events, end, false));
  add(end.user.exception);
  add(find_event(events, end, true));
  add(end.user.space);
  add(find_limit(end));
  return out;
}

}  // namespace amldist::step
