// Sleeps until a word in shared memory changes: futex(2) between processes.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>

namespace amldist {

/// Sleeps while the word is `seen`, at most `most`. May return early, for example on a signal.
inline void sleep_while(const std::atomic<std::uint32_t>& word, std::uint32_t seen,
                        std::chrono::nanoseconds most) noexcept {
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(most);
  const timespec limit = {static_cast<std::time_t>(whole.count()), static_cast<long>((most - whole).count())};
  static_cast<void>(::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &limit, nullptr, 0));
}

/// Wakes all threads of all processes that sleep on the word; call it after changing the word. Returns how many woke.
inline int wake_sleepers(const std::atomic<std::uint32_t>& word) noexcept {
  return static_cast<int>(::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0));
}

}  // namespace amldist
