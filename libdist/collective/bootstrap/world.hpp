// How the processes of a step become a world: everybody connects to rank 0 (wireup/), which sends everybody the member
// table. The connections stay open as the control connections.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "collective/bootstrap/member_table.hpp"
#include "collective/bootstrap/root_address.hpp"
#include "collective/bootstrap/world_secret.hpp"
#include "wireup/handshake.hpp"

namespace amldist::collective {

/// What bootstrap leaves behind.
struct World {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::uint64_t nonce = 0;  ///< MemberTable::nonce
  Integrity integrity = Integrity::off;
  wireup::Credentials credentials;    ///< what strangers do not know
  std::vector<Member> members;        ///< by rank
  FileDescriptor listener;            ///< for later connections
  std::vector<FileDescriptor> links;  ///< on rank 0: to each rank (0: none); else [0] to rank 0
  std::string provenance;             ///< who said who this process is, and where rank 0 is
};

/// Under which the world's processes make later connections to each other.
[[nodiscard]] wireup::GroupKey key_of_connections(const World& world);

/// Joins the world by `deadline`. `secret` is what its connections prove; its file goes when all have come. `job` tells
/// one step's processes from another's at the same port; `node_name` replaces the host name unless it is empty. Errors:
/// timeout with the names of those that did not come, mismatch (sizes differ, a rank came twice), and what the root
/// address says.
[[nodiscard]] Result<World> join_world(const ProcessIdentity& identity, RootAddress& root, const WorldSecret& secret,
                                       std::string_view job, const std::string& node_name, Clock::time_point deadline);
/// The world of one process that nobody started.
[[nodiscard]] World single_process_world(const std::string& node_name);

}  // namespace amldist::collective
