// Interrupts of a command that follows something: they wait until they are asked for.
#pragma once

#include <chrono>
#include <optional>
#include <string_view>

#include "base/os/file_descriptor.hpp"
#include "shared/signals.hpp"

namespace amldist::commands {

/// SIGINT, SIGTERM and SIGHUP as a descriptor, while this object lives. One at a time: for the thread that made it.
class Interrupts {
 public:
  Interrupts();

  /// Waits for `time`, or until a signal arrives: then this one.
  std::optional<int> wait(std::chrono::milliseconds time);

  enum class Choice { cancel, detach, go_on };
  /// What an interrupt asks for: after SIGINT on a terminal the user's answer to "cancel WHAT?", where a second Ctrl-C
  /// means yes, and a terminal that is gone, detach. Any other interrupt cancels.
  [[nodiscard]] Choice choice_after(int signal, std::string_view what);

 private:
  HeldInterrupts held_;
  FileDescriptor descriptor_;
};

}  // namespace amldist::commands
