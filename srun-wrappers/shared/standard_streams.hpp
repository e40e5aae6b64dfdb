// Standard input, output and error, which the caller may have closed or put on a full disk.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace amldist::commands {

/// Opens /dev/null for a standard stream that is closed, so that no file or socket opened later takes its number, and
/// with it the output.
inline void fill_closed_streams() noexcept {
  for (int number = STDIN_FILENO; number <= STDERR_FILENO; ++number) {
    if (::fcntl(number, F_GETFD) >= 0 || errno != EBADF) continue;
    if (::open("/dev/null", number == STDIN_FILENO ? O_RDONLY : O_WRONLY) != number) return;
  }
}

/// Whether everything printed was written; prints an error if not.
[[nodiscard]] inline bool printed_all() noexcept {
  const bool failed_before = std::ferror(stdout) != 0;
  if (failed_before) {  // the reason is lost, and known again after one more try
    std::clearerr(stdout);
    std::fputc('\n', stdout);
  }
  errno = 0;
  if (std::fflush(stdout) == 0 && !failed_before) return true;
  std::fprintf(stderr, "aml-dist: standard output cannot be written%s%s\n", errno != 0 ? ": " : "",
               errno != 0 ? std::strerror(errno) : "");
  return false;
}

}  // namespace amldist::commands
