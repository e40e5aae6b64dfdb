// Whether another process is still there.
#pragma once

#include <sys/types.h>

#include <cerrno>
#include <csignal>

namespace amldist {

/// Whether no process has this number, of those that this one may see. A zombie still has its number, and a number may
/// be another process's by now. Thread-safe.
[[nodiscard]] inline bool process_has_ended(pid_t process) noexcept {
  return ::kill(process, 0) != 0 && errno == ESRCH;
}

}  // namespace amldist
