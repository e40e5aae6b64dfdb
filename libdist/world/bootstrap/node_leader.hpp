// How the processes of a node find their leader: the first one that binds a name in the kernel's abstract name space of
// Unix sockets is the leader, the others connect to it. A name exists in one network name space, and only while the
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

/// The name by which the processes of a node find each other; made only here. `group`: purpose, job, step, rank 0's
/// address and the number of worlds that the process was in before, so that a second world does not join the first.
/// Without the group's secret the name cannot be predicted and taken.
[[nodiscard]] std::string node_leader_name(const world::Key& key, std::string_view group, std::string_view node);

/// The role of a process: the leader has a listener, a follower a connection; with neither, the process is a leader
/// without followers.
struct NodeLeader {
  FileDescriptor listener;
  FileDescriptor leader;
};

/// `patience`: how long a process waits for another one to become leader before it does so itself. A socket of another
/// user is ignored.
[[nodiscard]] NodeLeader find_node_leader(const std::string& name, std::chrono::milliseconds patience,
                                          Clock::time_point deadline);

/// A connection that waits at a leader's listener, non-blocking; those of other users are closed. Invalid if no
/// connection waits.
[[nodiscard]] FileDescriptor accept_on_node(const FileDescriptor& listener) noexcept;

}  // namespace amldist::world
