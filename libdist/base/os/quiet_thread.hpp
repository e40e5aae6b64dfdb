// A thread of ours in a program of somebody else's: it takes none of the program's signals, and ends when it is told
// to.
#pragma once

#include <unistd.h>

#include <functional>
#include <memory>
#include <thread>

#include "base/os/file_descriptor.hpp"

namespace amldist {

class QuietThread {
 public:
  QuietThread() noexcept;
  QuietThread(const QuietThread&) = delete;
  QuietThread& operator=(const QuietThread&) = delete;
  /// Asks the thread to stop and waits for it. In a forked child, which has no copy of the thread, it does neither.
  ~QuietThread();

  /// Runs `body` with every signal blocked. `body` gets a descriptor that becomes readable when it is to return; what
  /// it throws, which can only be a lack of memory, ends the thread. Returns false without memory or processes. Once.
  [[nodiscard]] bool start(std::function<void(int stop)> body) noexcept;
  [[nodiscard]] bool is_started() const noexcept { return thread_ != nullptr; }

 private:
  FileDescriptor stop_;  ///< an eventfd
  std::unique_ptr<std::thread> thread_;
  pid_t holder_ = ::getpid();
};

}  // namespace amldist
