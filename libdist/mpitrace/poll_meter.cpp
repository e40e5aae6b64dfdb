#include "mpitrace/poll_meter.hpp"

#include <ctime>

namespace amldist::mpitrace {
namespace {

std::uint64_t read_clock(clockid_t clock) noexcept {
  timespec time = {};
  ::clock_gettime(clock, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(time.tv_nsec);
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
}

PollMeter::Finding PollMeter::judge(std::uint64_t now, std::uint64_t calls) const noexcept {
  constexpr std::uint64_t longest_interval_ns = 1'000'000'000;
  constexpr std::uint64_t longest_test_ns = 20'000;  // of the processor's time, with what is between two of them
  constexpr std::uint64_t least_part = 5;            // a fifth of the time is work
  const std::uint64_t passed = now - begin_ns_;
  if (has_found_ || calls != calls_ || passed > longest_interval_ns) return Finding::busy;
  const std::uint64_t own = read_clock(CLOCK_THREAD_CPUTIME_ID) - thread_cpu_ns_;
  const std::uint64_t all = read_clock(CLOCK_PROCESS_CPUTIME_ID) - process_cpu_ns_;
  const bool others_work = all > own && (all - own) * least_part > passed;
  const bool works = own * least_part > passed && own > tests_ * longest_test_ns;
  return others_work || works ? Finding::busy : Finding::waits;
}

}  // namespace amldist::mpitrace
