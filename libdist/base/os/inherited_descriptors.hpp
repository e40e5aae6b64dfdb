// Descriptors that a forked process has from its parent and does not need.
#pragma once

namespace amldist {

/// Closes every descriptor of this process but two (-1: none), so that a pipe, a socket or a lock of the parent's ends
/// with the parent. Safe between fork() and exec().
void close_all_but(int one, int other) noexcept;

}  // namespace amldist
