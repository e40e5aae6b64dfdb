// How long Linux lets a thread run before it switches to another.
#pragma once

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>

namespace amldist {

/// For a thread that mostly sleeps and then has little to do: from Linux 6.12 on, a waking thread interrupts a
/// computing one at once if its slice is shorter. Older kernels ignore the length. Needs no privilege.
inline void ask_for_short_slices() noexcept {
  struct {  // the first version of sched_setattr(2)'s sched_attr
    std::uint32_t size;
    std::uint32_t policy;
    std::uint64_t flags;
    std::int32_t nice;
    std::uint32_t priority;
    std::uint64_t runtime;
    std::uint64_t deadline;
    std::uint64_t period;
  } attributes = {};
  constexpr std::uint64_t slice_ns = 100'000;  // the shortest that Linux accepts
  const bool is_read = ::syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) == 0;
  if (!is_read || attributes.policy != SCHED_OTHER) return;
  attributes.runtime = slice_ns;
  static_cast<void>(::syscall(SYS_sched_setattr, 0, &attributes, 0));
}

}  // namespace amldist
