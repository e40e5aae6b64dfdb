#include "trace/record/process_activity.hpp"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string_view>

#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"
#include "base/time/clock.hpp"

namespace amldist::trace {
namespace {

using text::concat;

/// A poll every few milliseconds takes a hundredth of a processor; the threads of a framework that idles, less.
constexpr std::uint32_t least_processor_tenths = 1;
/// On a node with far more threads than processors one that computes may get less, but it waits for a processor all the
/// time. A poll waits for one, too, now and then.
constexpr std::uint32_t least_runnable_tenths = 5;
constexpr std::uint64_t least_io_per_second = 100'000;
constexpr std::uint64_t bytes_per_mb = 1'000'000;

/// Kernel functions in which a thread sleeps (/proc/ID/wchan, Linux 5.4 to 6.18).
struct Sleep {
  std::string_view function;
  Obstacle obstacle;
};
constexpr auto sleeps = std::to_array<Sleep>({
    {"pipe_write", Obstacle::output},
    {"anon_pipe_write", Obstacle::output},
    {"fifo_pipe_write", Obstacle::output},
    {"n_tty_write", Obstacle::output},
    {"tty_write", Obstacle::output},
    {"locks_lock_inode_wait", Obstacle::file_lock},
    {"flock_lock_inode_wait", Obstacle::file_lock},
    {"do_lock_file_wait", Obstacle::file_lock},
    {"fcntl_setlk", Obstacle::file_lock},
    {"wait_woken", Obstacle::input},
});

std::string file_of(pid_t process, std::string_view name) {
  constexpr std::size_t most = 512;
  return read_file_start(concat({"/proc/", std::to_string(process), "/", name}), most);
}

std::uint64_t io_of(pid_t process) {
  std::uint64_t bytes = 0;
  const std::string content = file_of(process, "io");
  for (const std::string_view line : text::split(content, '\n')) {
    for (const std::string_view name : {"rchar: ", "wchar: "}) {
      if (line.starts_with(name)) bytes += text::to_number(line.substr(name.size()), 1ULL << 60).value_or(0);
    }
  }
  return bytes;
}

/// Adds what the threads of a process have of the processors. Of many, some are read.
void add_threads(pid_t process, std::size_t& most_threads, std::uint64_t& starved_ns, std::uint32_t& runnable) {
  constexpr std::uint64_t longest = 1ULL << 60;
  const std::string tasks = concat({"/proc/", std::to_string(process), "/task"});
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(tasks.c_str()), &::closedir);
  while (const dirent* const entry = folder && most_threads > 0 ? ::readdir(folder.get()) : nullptr) {
    if (entry->d_name[0] == '.') continue;
    --most_threads;
    const std::string thread = concat({tasks, "/", entry->d_name});
    const std::string content = read_file_start(thread + "/schedstat", 128);
    const auto words = text::split(content, ' ');  // nanoseconds in use, nanoseconds of waiting, turns
    if (words.size() > 1) starved_ns += text::to_number(words[1], longest).value_or(0);
    const auto stat = parse_process_stat(read_file_start(thread + "/stat", 512));
    if (stat && stat->state == 'R') ++runnable;
  }
}

/// `function`: the kernel's, in which a thread sleeps.
Obstacle obstacle_in(std::string_view function) {
  const auto* const found = std::ranges::find(sleeps, function, &Sleep::function);
  return found != sleeps.end() ? found->obstacle : Obstacle::none;
}

/// A process that sleeps for moments, as one that receives, may run by the time its kernel function is read, which is
/// "0" then. It is "0", too, if the process has lost its processor on the way to sleep, until it runs again, and where
/// the kernel does not tell.
Obstacle obstacle_of(ProcessStat process) {
  constexpr int most_looks = 8;
  for (int look = 0; look < most_looks; ++look) {
    if (process.state == 'R') return Obstacle::processor;
    if (process.state == 'D') return Obstacle::file_system;
    if (process.state != 'S') return Obstacle::none;
    const std::string function = file_of(process.id, "wchan");
    if (function != "0") return obstacle_in(function);
    const auto now = parse_process_stat(file_of(process.id, "stat"));
    if (!now) return Obstacle::none;
    process = *now;
  }
  return Obstacle::none;
}

std::string tenths(std::uint32_t value) {
  return concat({std::to_string(value / 10), ".", std::to_string(value % 10)});
}

}  // namespace

ActivityTotals totals_of(pid_t process, const ProcessTable& all) {
  constexpr std::uint64_t ms_per_s = 1000;
  const auto ticks_per_s = static_cast<std::uint64_t>(std::max(1L, ::sysconf(_SC_CLK_TCK)));
  ActivityTotals totals;
  totals.at_ms = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now().time_since_epoch()).count();
  constexpr std::uint64_t ns_per_ms = 1'000'000;
  std::size_t most_threads = 512;
  std::uint64_t starved_ns = 0;
  for (const ProcessStat& each : all.family_of(process)) {
    add_threads(each.id, most_threads, starved_ns, totals.runnable);
    totals.cpu_ms += each.cpu_ticks * ms_per_s / ticks_per_s;
    totals.io_bytes += io_of(each.id);
    if (each.id != process) ++totals.children;
    if (totals.obstacle == Obstacle::none) totals.obstacle = obstacle_of(each);
  }
  totals.starved_ms = starved_ns / ns_per_ms;
  return totals;
}

bool Activity::is_busy() const noexcept {
  return processor_tenths >= least_processor_tenths || io_per_second >= least_io_per_second ||
         processor_tenths + starved_tenths >= least_runnable_tenths || obstacle != Obstacle::none;
}

Activity activity_between(const ActivityTotals& earlier, const ActivityTotals& later) noexcept {
  Activity activity{0, 0, later.children, later.obstacle};
  // One that shares a processor with many runs now and then, and may sleep just now; one that receives may be about to.
  const bool sleeps_for_moments = earlier.obstacle == Obstacle::processor || earlier.obstacle == Obstacle::input;
  if (later.obstacle == Obstacle::none && sleeps_for_moments) activity.obstacle = earlier.obstacle;
  // Totals may shrink: a child that nobody waited for takes its own with it.
  const auto grown = [](std::uint64_t from, std::uint64_t to) { return to > from ? to - from : 0; };
  const auto ms = static_cast<std::uint64_t>(std::max<std::int64_t>(later.at_ms - earlier.at_ms, 0));
  if (ms == 0) return activity;
  // It waits for a processor though no wait was counted: the kernel counts one when it ends, and not any more when the
  // thread has ended.
  const bool could_run = earlier.runnable != 0 && later.runnable != 0;
  if (activity.obstacle == Obstacle::none && could_run) activity.obstacle = Obstacle::processor;
  const auto tenths_of = [&](std::uint64_t from, std::uint64_t to) {
    constexpr std::uint64_t most = 1'000'000;
    return static_cast<std::uint32_t>(std::min(grown(from, to) * 10 / ms, most));
  };
  activity.processor_tenths = tenths_of(earlier.cpu_ms, later.cpu_ms);
  activity.starved_tenths = tenths_of(earlier.starved_ms, later.starved_ms);
  activity.io_per_second = grown(earlier.io_bytes, later.io_bytes) / ms * 1000;
  return activity;
}

std::string describe(const Activity& activity) {
  const std::string children =
      activity.children == 0
          ? ""
          : concat({std::to_string(activity.children), activity.children == 1 ? " child, " : " children, "});
  if (activity.obstacle == Obstacle::output) return "nobody reads its output";
  if (activity.processor_tenths >= least_processor_tenths) {
    return concat({"it computes (", children, tenths(activity.processor_tenths),
                   activity.processor_tenths == 10 ? " processor)" : " processors)"});
  }
  if (activity.io_per_second >= least_io_per_second) {
    const auto per_s =
        static_cast<std::uint32_t>(std::min<std::uint64_t>(activity.io_per_second * 10 / bytes_per_mb, 1'000'000'000));
    return concat({"it reads and writes (", children, tenths(per_s), " MB/s)"});
  }
  if (activity.obstacle == Obstacle::file_lock) return "it waits for a lock on a file";
  if (activity.obstacle == Obstacle::processor || activity.starved_tenths >= least_runnable_tenths)
    return "it waits for a processor";
  if (activity.obstacle == Obstacle::input) return "it waits for data from a socket";
  if (activity.obstacle == Obstacle::file_system) return "it waits for a file system";
  return {};
}

}  // namespace amldist::trace
