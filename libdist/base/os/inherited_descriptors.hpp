// Closes the descriptors that a forked process inherited and does not need.
#pragma once

namespace amldist {

/// Closes every descriptor of this process except two (-1: none), so that the parent's pipes, sockets and locks end
/// with the parent. Safe between fork() and exec().
void close_all_but(int one, int other) noexcept;

}  // namespace amldist
