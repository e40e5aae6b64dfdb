// How the processes of a node find their leader: the first one that binds a name in the kernel's name space of Unix
// sockets is the leader, the others connect to it. A name exists in one network name space, and only as long as the
// socket is open.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/net/socket.hpp"
#include "base/os/file_descriptor.hpp"
#include "base/text/result.hpp"
#include "base/time/clock.hpp"
#include "world/wireup/key.hpp"

namespace amldist::world {

/// The name at which the processes of a node meet. The only place where it is made. `group`: purpose, job, step,
/// rank 0's address and the number of worlds that the process was in before, so that a second one does not meet the
/// first. Without the group's secret nobody can tell the name beforehand and take it.
[[nodiscard]] std::string node_leader_name(const world::Key& key, std::string_view group, std::string_view node);

/// What became of a process: the leader has a listener, a follower a connection; who has neither is a leader alone.
struct NodeLeader {
  FileDescriptor listener;
  FileDescriptor leader;
};

/// `patience`: how long a process waits for another one to become leader before it does so itself. A socket of another
/// user is left alone.
[[nodiscard]] NodeLeader find_node_leader(const std::string& name, std::chrono::milliseconds patience,
                                          Clock::time_point deadline);

/// A connection that waits at a leader's listener, non-blocking; those of other users are closed. Invalid: none.
[[nodiscard]] FileDescriptor accept_on_node(const FileDescriptor& listener) noexcept;

}  // namespace amldist::world
