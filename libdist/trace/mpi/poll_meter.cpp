#include "trace/mpi/poll_meter.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <utility>

namespace amldist::trace::mpi {
namespace {

std::uint64_t read_clock(clockid_t clock) noexcept {
  timespec time = {};
  ::clock_gettime(clock, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(time.tv_nsec);
}

/// How long this thread has been ready to run while others had its processor; nullopt if the kernel does not say.
/// Source: Linux, Documentation/scheduler/sched-stats.rst: time on a processor, time on a run queue (ns), turns.
std::optional<std::uint64_t> queued_so_far() noexcept {
  const int file = ::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  std::array<char, 96> text = {};
  const auto length = ::read(file, text.data(), text.size());
  ::close(file);
  if (length <= 0) return {};
  const char* const end = text.data() + length;
  const char* const space = std::find(std::as_const(text).data(), end, ' ');
  std::uint64_t queued = 0;
  if (space == end || std::from_chars(space + 1, end, queued).ec != std::errc()) return {};
  return queued;
}

}  // namespace

std::uint64_t PollMeter::coarse_ns() noexcept { return read_clock(CLOCK_MONOTONIC_COARSE); }

void PollMeter::begin_interval(std::uint64_t calls) noexcept {
  tests_ = 0;
  has_found_ = false;
  calls_ = calls;
  begin_ns_ = coarse_ns();
  begin_ticks_ = clock_.now();
  thread_cpu_ns_ = read_clock(CLOCK_THREAD_CPUTIME_ID);
  process_cpu_ns_ = read_clock(CLOCK_PROCESS_CPUTIME_ID);
  queued_ns_ = queued_so_far();
}

PollMeter::Finding PollMeter::judge(std::uint64_t now, std::uint64_t calls) const noexcept {
  constexpr std::uint64_t longest_interval_ns = 1'000'000'000;
  constexpr std::uint64_t longest_test_ns = 20'000;  // of processor time, including what lies between two tests
  constexpr std::uint64_t least_part = 5;            // a fifth of the time is work
  const std::uint64_t passed = now - begin_ns_;
  if (has_found_ || calls != calls_ || passed > longest_interval_ns) return Finding::busy;
  const std::uint64_t own = read_clock(CLOCK_THREAD_CPUTIME_ID) - thread_cpu_ns_;
  const std::uint64_t all = read_clock(CLOCK_PROCESS_CPUTIME_ID) - process_cpu_ns_;
  // On a busy machine the program gets less processor time than has passed; the time in which it was ready to run is
  // not waiting.
  const auto queued = queued_so_far();
  const bool is_told = queued && queued_ns_;
  const std::uint64_t whole = is_told ? passed - std::min(passed, *queued - *queued_ns_) : own;
  const bool others_work = all > own && (all - own) * least_part > whole;
  const bool works = own * least_part > whole && own > tests_ * longest_test_ns;
  return others_work || works ? Finding::busy : Finding::waits;
}

}  // namespace amldist::trace::mpi
