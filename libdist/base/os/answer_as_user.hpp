// Answers a question about files with the user's rights where root's must not be used.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "base/os/child_process.hpp"
#include "base/os/file_descriptor.hpp"
#include "base/time/clock.hpp"

namespace amldist {

/// The user whose rights apply.
struct UserRights {
  uid_t user = 0;
  gid_t group = 0;
};

/// Longest answer, in bytes.
inline constexpr std::size_t longest_answer_as_user = 3600;

/// Calls `answer` in a forked copy of this process and returns what it returns. If this process is root, the copy first
/// becomes the user for good: the user's id and group, no other group, no capability. It holds no descriptor of this
/// process, blocks every signal, cannot be traced by the user, and is killed after `timeout` or when the calling thread
/// ends.
///
/// A process and not a thread with another user id, for three reasons. The C library changes the ids of all threads of
/// a process together. A file system of the user's own (FUSE) refuses a thread unless all of its ids are the user's.
/// And a thread that such a file system blocks cannot be ended.
///
/// nullopt: the process could not be started or could not become the user; or `answer` took too long, threw, or
/// returned more than longest_answer_as_user. `answer` may allocate memory; it must not need a lock that another thread
/// of this process may hold at the moment of the fork.
[[nodiscard]] std::optional<std::string> answer_as_user(UserRights rights, const std::function<std::string()>& answer,
                                                        std::chrono::milliseconds timeout);

/// The same, while this process goes on. Move-only; its end ends the copy.
class UserCopy {
 public:
  /// nullopt: the process could not be started.
  [[nodiscard]] static std::optional<UserCopy> start(UserRights rights, const std::function<std::string()>& answer);

  /// Of the copy, which is a child of this process.
  [[nodiscard]] pid_t id() const noexcept { return child_.id(); }
  /// Becomes readable when it has answered or ended.
  [[nodiscard]] int descriptor() const noexcept { return answer_.get(); }
  /// nullopt if no answer has come by then.
  [[nodiscard]] std::optional<std::string> answer(Clock::time_point deadline) const;

 private:
  UserCopy(ChildProcess child, FileDescriptor answer) : child_(std::move(child)), answer_(std::move(answer)) {}
  ChildProcess child_;
  FileDescriptor answer_;
};

}  // namespace amldist
