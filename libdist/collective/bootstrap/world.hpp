// How the processes of a step become a world: everybody connects to rank 0, which tells everybody who is who and where.
// The connections stay open as the control connections.
#pragma once

#include <string>
#include <vector>

#include "collective/bootstrap/meeting_point.hpp"

namespace amldist::collective {

/// One process of the world.
struct Member {
  std::string host;        ///< its host name
  std::string node;        ///< equal for processes that share memory
  std::uint32_t pid = 0;   ///< as its own node sees it
  Ipv4 address;            ///< where it listens, as the reader of the table reaches it
  std::uint16_t port = 0;  ///< of its listener
};

/// What bootstrap leaves behind.
struct World {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::uint64_t nonce = 0;            ///< random, the same on all ranks: strangers do not know it
  std::vector<Member> members;        ///< by rank
  FileDescriptor listener;            ///< for later connections
  std::vector<FileDescriptor> links;  ///< on rank 0: to each rank (0: none); else [0] to rank 0
  std::vector<std::string> unread;    ///< bytes that came behind the last bootstrap frame, by link
  std::string provenance;             ///< who said who this process is, and where rank 0 is
};

/// Joins the world by `deadline`. `job` tells one step's processes from another's at the same port; `node_name`
/// replaces the host name unless it is empty. Errors: timeout with the names of those that did not come, mismatch
/// (sizes differ, a rank came twice), and what the meeting point says.
[[nodiscard]] Result<World> join_world(const ProcessIdentity& identity, MeetingPoint& point, std::string_view job,
                                       const std::string& node_name, Clock::time_point deadline);
/// The world of one process that nobody started.
[[nodiscard]] World single_process_world(const std::string& node_name);

}  // namespace amldist::collective
