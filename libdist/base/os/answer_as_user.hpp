// A question about files that root must not answer with root's rights.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace amldist {

/// Whose rights count.
struct UserRights {
  uid_t user = 0;
  gid_t group = 0;
};

/// Longest answer, in bytes.
inline constexpr std::size_t longest_answer_as_user = 3600;

/// Calls `answer` in a forked copy of this process and returns what it returns. A copy of root's becomes the user
/// first, for good: his user and group, no other group, no capability. It holds no descriptor of this process, blocks
/// every signal, cannot be traced by the user, and is killed after `timeout` or with the thread that calls this.
///
/// A process and not a thread with another user id, for three reasons. The C library changes the ids of all threads of
/// a process together. A file system of the user's own (FUSE) refuses a thread whose ids are not all his. And a thread
/// that such a file system holds up cannot be ended.
///
/// nullopt: the process could not be started or could not become the user; or `answer` took too long, threw, or
/// returned more than longest_answer_as_user. `answer` may allocate memory; it must not need a lock that another thread
/// of this process may hold at the moment of the fork.
[[nodiscard]] std::optional<std::string> answer_as_user(UserRights rights, const std::function<std::string()>& answer,
                                                        std::chrono::milliseconds timeout);

}  // namespace amldist
