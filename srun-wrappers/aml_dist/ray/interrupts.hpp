// Signals as something to wait for, beside connections.
#pragma once

#include <optional>

#include "base/os/file_descriptor.hpp"

namespace amldist::ray {

/// While this lives, SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are read here and do nothing else; so are SIGCHLD,
/// which only wakes whoever waits, and SIGPIPE: nobody may be left to read what this process says.
class Interrupts {
 public:
  Interrupts();
  [[nodiscard]] int descriptor() const noexcept { return descriptor_.get(); }
  /// The next signal but SIGCHLD and SIGPIPE that has come; nullopt: no more.
  [[nodiscard]] std::optional<int> next() const noexcept;

 private:
  FileDescriptor descriptor_;
};

/// Whether the signal asks a process to end.
[[nodiscard]] bool asks_to_end(int signal) noexcept;

}  // namespace amldist::ray
