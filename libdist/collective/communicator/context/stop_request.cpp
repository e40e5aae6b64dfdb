#include "collective/communicator/context/stop_request.hpp"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <exception>
#include <string>

#include "base/os/environment.hpp"
#include "base/text/text.hpp"
#include "launch/option/settings.hpp"

namespace amldist::collective {
namespace {

std::atomic<bool>& heard() noexcept {
  static std::atomic<bool> value = false;
  return value;
}

std::atomic<pid_t>& owner() noexcept {
  static std::atomic<pid_t> value = 0;
  return value;
}

/// Only what is safe in a signal handler. The variables were made before it was set.
extern "C" void take_stop_signal(int number) {
  if (::getpid() == owner().load()) return heard().store(true);
  ::signal(number, SIG_DFL);  // a forked child, such as a worker that its parent ends
  ::raise(number);
}

void take(int number) noexcept {
  struct sigaction present = {};
  if (::sigaction(number, nullptr, &present) != 0 || present.sa_handler != SIG_DFL) return;
  struct sigaction own = {};
  own.sa_handler = take_stop_signal;
  own.sa_flags = SA_RESTART;
  ::sigemptyset(&own.sa_mask);
  static_cast<void>(::sigaction(number, &own, nullptr));
}

/// The stop file, with the signals taken; empty: the step has no key stop=.
std::string prepare() noexcept {
  try {
    std::string file = own_variable(launch::variable::stop_file).value_or("");
    if (file.empty()) return file;
    owner().store(::getpid());
    heard().load();
    take(SIGTERM);
    const auto number =
        text::to_number(own_variable(launch::variable::stop_signal).value_or(""), static_cast<std::uint64_t>(SIGRTMAX));
    if (number && *number > 0) take(static_cast<int>(*number));
    return file;
  } catch (const std::exception&) {  // out of memory
    return {};
  }
}

/// The clock costs a few nanoseconds, the look a system call.
bool is_time_to_look() noexcept {
  constexpr std::int64_t between_looks = 100'000'000;
  static std::atomic<std::int64_t> next = 0;
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  const std::int64_t at = now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
  if (at < next.load(std::memory_order_relaxed)) return false;
  next.store(at + between_looks, std::memory_order_relaxed);
  return true;
}

}  // namespace

bool stop_is_requested() noexcept {
  static const std::string file = prepare();
  if (heard().load(std::memory_order_relaxed)) return true;
  if (file.empty() || !is_time_to_look() || ::access(file.c_str(), F_OK) != 0) return false;
  heard().store(true);
  return true;
}

void note_stop() noexcept { heard().store(true); }

}  // namespace amldist::collective
