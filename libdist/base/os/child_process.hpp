// The one way in which library, plugin and tools start a child: a program, never through a shell, or a copy of this
// process that does one thing which may hang or die. Only the plugin's task monitor calls fork() itself, because there
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
  std::vector<std::string> words = {};                       ///< if the first has no '/', PATH is searched
  std::optional<std::vector<std::string>> environment = {};  ///< "NAME=VALUE"; absent: this process's
  int standard_input = STDIN_FILENO;                         ///< descriptors of this process that become its streams
  int standard_output = STDOUT_FILENO;
  int standard_error = STDERR_FILENO;
  bool own_group = false;  ///< a Ctrl-C at the terminal does not reach it
};

/// A child process. If its owner is destroyed without having waited for it, it is killed and reaped. Move-only.
class ChildProcess {
 public:
  /// Starts a program with no signal blocked and SIGPIPE at its default, and returns at once. Descriptors without
  /// FD_CLOEXEC are inherited. Safe in a process with threads (posix_spawn). Errors: not_found, unavailable (not
  /// executable), internal (no process).
  [[nodiscard]] static Result<ChildProcess> start(const ChildProgram& program);

  /// Starts a copy of this process that runs `work` and ends with status 0, or 1 if `work` throws; no destructor of the
  /// parent's objects runs, and no buffer is flushed. If the parent has threads, `work` must not need a lock that one
  /// of them may hold. Errors: internal (no process).
  [[nodiscard]] static Result<ChildProcess> fork(const std::function<void()>& work);

  ChildProcess(ChildProcess&& other) noexcept
      : id_(std::exchange(other.id_, none)), handle_(std::move(other.handle_)), status_(other.status_) {}
  ChildProcess& operator=(ChildProcess&& other) noexcept {
    std::swap(id_, other.id_);
    std::swap(handle_, other.handle_);
    std::swap(status_, other.status_);
    return *this;
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;
  /// Waits at most 100 ms for a killed child; one in an uninterruptible call is left to the process that inherits it.
  ~ChildProcess();

  /// Its number; -1 once it has been waited for.
  [[nodiscard]] pid_t id() const noexcept { return id_; }

  /// Sends a signal to a child that was not waited for, and to no other process: not even where somebody else in this
  /// process has waited for it and its number is in use again (slurmstepd waits for every child that it finds).
  void kill(int signal) const noexcept;

  /// The same to all of the process group that it leads.
  void kill_group(int signal) const noexcept;

  /// Waits until it has ended. Returns its shell_status(); calling it again returns the same.
  int wait() noexcept;
  /// The same, if it ends before `deadline`; else nullopt.
  [[nodiscard]] std::optional<int> wait_until(Clock::time_point deadline) noexcept;
  /// The same without waiting.
  [[nodiscard]] std::optional<int> poll() noexcept { return wait_until(Clock::time_point::min()); }

 private:
  static constexpr pid_t none = -1;
  explicit ChildProcess(pid_t id) noexcept;
  /// The shell_status() of a child that has ended, with waitid(2)'s options; nullopt: it runs. 0 for a child for which
  /// somebody else has waited.
  [[nodiscard]] std::optional<int> reap(int options) const noexcept;

  pid_t id_;
  FileDescriptor handle_;  ///< a pidfd; empty before Linux 5.4
  int status_ = 0;         ///< valid once the child has been waited for
};

/// Becomes the program; returns only on failure. Errors: not_found (no such program), unavailable (not executable).
[[nodiscard]] Error become(const std::vector<std::string>& words);

/// A wait status as a shell reports it: the exit status, or 128 + signal.
[[nodiscard]] int shell_status(int wait_status) noexcept;
/// The signal that ended a program, or the last command of its shell; 0 for a plain exit status.
[[nodiscard]] int signal_of(int shell_status) noexcept;

/// Both ends of a pipe, not inherited by the programs that are started.
struct Pipe {
  FileDescriptor reading;
  FileDescriptor writing;

  /// Errors: unavailable.
  [[nodiscard]] static Result<Pipe> make();
};

/// Reads until the other end closes. Errors: timeout, limit (more than `most` bytes), unavailable.
[[nodiscard]] Result<std::string> read_until_end(int descriptor, Clock::time_point deadline, std::size_t most);

/// The result of a program that has ended.
struct ChildOutput {
  std::string text;  ///< its standard output
  int status = 0;    ///< its shell_status()
};

/// Where the standard error of a program goes of which only the output is wanted.
enum class ErrorStream { dropped, with_output };

/// Runs a program to its end and returns its standard output, whatever its exit status; its standard input, and its
/// standard error unless it goes with the output, are /dev/null. It is killed at the deadline, and when it writes more
/// than `most` bytes. Errors: not_found, unavailable, internal (it cannot be started), timeout, limit.
[[nodiscard]] Result<ChildOutput> output_of(ChildProgram program, Clock::time_point deadline, std::size_t most,
                                            ErrorStream errors = ErrorStream::dropped);

}  // namespace amldist
