// The one way in which library, plugin and tools start a child: a program, never through a shell, or a copy of this
// process that does one thing which may hang or die. Only the plugin's task monitor forks by itself, because there
// the child becomes the task and the parent stays.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/os/file_descriptor.hpp"
#include "base/text/result.hpp"
#include "base/time/clock.hpp"

namespace amldist {

/// A program and what it starts with.
struct ChildProgram {
  std::vector<std::string> words = {};                       ///< without '/' in the first one, PATH is searched
  std::optional<std::vector<std::string>> environment = {};  ///< "NAME=VALUE"; absent: this process's
  int standard_input = STDIN_FILENO;                         ///< descriptors of this process that become its streams
  int standard_output = STDOUT_FILENO;
  int standard_error = STDERR_FILENO;
  bool own_group = false;  ///< a Ctrl-C at the terminal does not reach it
};

/// A child that is killed and reaped when its owner goes without having waited for it. Move-only.
class ChildProcess {
 public:
  /// Starts a program with no signal blocked and SIGPIPE at its default, and returns at once. Descriptors without
  /// FD_CLOEXEC are inherited. Safe in a process with threads (posix_spawn). Errors: not_found, unavailable (not
  /// executable), internal (no process).
  [[nodiscard]] static Result<ChildProcess> start(const ChildProgram& program);

  /// Starts a copy of this process that does `work` and ends with status 0, or 1 if `work` throws; no destructor of the
  /// parent's objects runs, and no buffer is written out. Where the parent has threads, `work` must not need a lock
  /// that one of them may hold. Errors: internal (no process).
  [[nodiscard]] static Result<ChildProcess> fork(const std::function<void()>& work);

  ChildProcess(ChildProcess&& other) noexcept : id_(std::exchange(other.id_, none)), status_(other.status_) {}
  ChildProcess& operator=(ChildProcess&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(status_, other.status_);
    return *this;
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  /// Waits at most 100 ms for a killed child: one in an uninterruptible call is left to whoever inherits it.
  ~ChildProcess();

  /// Sends a signal to a child that was not waited for.
  void kill(int signal) const noexcept;

  /// The same to all of the process group that it leads.
  void kill_group(int signal) const noexcept;

  /// Waits until it has ended. The result is its shell_status(), and stays that.
  int wait() noexcept;
  /// The same, for an end before `deadline`; else nullopt.
  [[nodiscard]] std::optional<int> wait_until(Clock::time_point deadline) noexcept;
  /// The same, for an end that lies in the past.
  [[nodiscard]] std::optional<int> poll() noexcept { return wait_until(Clock::time_point::min()); }

 private:
  static constexpr pid_t none = -1;
  explicit ChildProcess(pid_t id) noexcept : id_(id) {}

  pid_t id_;
  int status_ = 0;  ///< of a child that was waited for
};

/// Becomes the program; returns only on failure. Errors: not_found (no such program), unavailable (not executable).
[[nodiscard]] Error become(const std::vector<std::string>& words);

/// A wait status as a shell says it: the exit status, or 128 + signal.
[[nodiscard]] int shell_status(int wait_status) noexcept;
/// The signal that ended a program or what its shell ran last; 0 for a plain exit status.
[[nodiscard]] int signal_of(int shell_status) noexcept;

/// Both ends of a pipe; no program that is started inherits them by accident.
struct Pipe {
  FileDescriptor reading;
  FileDescriptor writing;

  /// Errors: unavailable.
  [[nodiscard]] static Result<Pipe> make();
};

/// Reads until the other end closes. Errors: timeout, limit (more than `most` bytes), unavailable.
[[nodiscard]] Result<std::string> read_until_end(int descriptor, Clock::time_point deadline, std::size_t most);

/// What a program that has ended left behind.
struct ChildOutput {
  std::string text;  ///< its standard output
  int status = 0;    ///< its shell_status()
};

/// Runs a program to its end and returns its standard output, whatever its exit status; its other streams are
/// /dev/null. It is killed at the deadline, and when it writes more than `most` bytes. Errors: not_found, unavailable,
/// internal (it cannot be started), timeout, limit.
[[nodiscard]] Result<ChildOutput> output_of(ChildProgram program, Clock::time_point deadline, std::size_t most);

}  // namespace amldist
