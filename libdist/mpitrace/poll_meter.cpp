#include "mpitrace/poll_meter.hpp"

#include <sys/resource.h>

#include <ctime>

namespace amldist::mpitrace {
namespace {

std::uint64_t read_clock(clockid_t clock) noexcept {
  timespec time = {};
  ::clock_gettime(clock, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(time.tv_nsec);
}

/// How often this thread has gone to sleep. It does not when others take its processor.
std::uint64_t sleeps_so_far() noexcept {
  rusage usage = {};
  ::getrusage(RUSAGE_THREAD, &usage);
  return static_cast<std::uint64_t>(usage.ru_nvcsw);  // NOLINT(cppcoreguidelines-pro-type-union-access): of glibc
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
  sleeps_ = sleeps_so_far();
}

PollMeter::Finding PollMeter::judge(std::uint64_t now, std::uint64_t calls) const noexcept {
  constexpr std::uint64_t longest_interval_ns = 1'000'000'000;
  constexpr std::uint64_t longest_test_ns = 20'000;  // of the processor's time, with what is between two of them
  constexpr std::uint64_t least_part = 5;            // a fifth of the time is work
  const std::uint64_t passed = now - begin_ns_;
  if (has_found_ || calls != calls_ || passed > longest_interval_ns) return Finding::busy;
  const std::uint64_t own = read_clock(CLOCK_THREAD_CPUTIME_ID) - thread_cpu_ns_;
  const std::uint64_t all = read_clock(CLOCK_PROCESS_CPUTIME_ID) - process_cpu_ns_;
  const bool sleeps = (sleeps_so_far() - sleeps_) * 2 > tests_;
  // Whoever does not sleep on a busy machine gets less of a processor than has passed, and so do its other threads.
  const std::uint64_t whole = sleeps ? passed : own;
  const bool others_work = all > own && (all - own) * least_part > whole;
  const bool works = own * least_part > whole && own > tests_ * longest_test_ns;
  return others_work || works ? Finding::busy : Finding::waits;
}

}  // namespace amldist::mpitrace
