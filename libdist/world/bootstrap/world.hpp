// How the processes of a step become a world: those of a node meet at their leader (node_leader.hpp), the leaders at
// rank 0, which gives each its place in a tree (tree_builder.hpp). The connections of the tree stay open as control
// connections. README.md tells the story.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "world/bootstrap/frame_links.hpp"
#include "world/bootstrap/rank_table.hpp"
#include "world/bootstrap/root_address.hpp"
#include "world/bootstrap/world_secret.hpp"
#include "world/wireup/handshake.hpp"

namespace amldist::world {

/// At rank 0: keeps listening after the start, and refuses processes that come too late, such as those of another job
/// with the same MASTER_PORT.
struct LateJoiners {
  FileDescriptor listener;
  world::GroupKey key;
  std::string group;
  std::vector<std::uint64_t> process_of_rank;       ///< wireup::JoinRequest::process
  std::shared_ptr<const world::SecretFile> secret;  ///< what those who come read; removed with this, if there is one
};

/// Whether one process, which may be in several worlds one after the other, gave both numbers.
[[nodiscard]] bool is_same_process(std::uint64_t one, std::uint64_t other) noexcept;

/// What bootstrap leaves behind.
struct World {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  RankTable table;
  Integrity integrity = Integrity::off;
  world::Credentials credentials;              ///< what strangers do not know
  FileDescriptor listener;                     ///< for later connections
  std::optional<LateJoiners> late_joiners;     ///< on rank 0, where the place may be another world's, too
  std::vector<std::uint64_t> process_of_rank;  ///< the same, until it is made
  FrameLinks::Links links;                     ///< to the leader above, the leaders below and the ranks of the node
  /// What came over them before the control thread was there.
  std::vector<std::pair<std::uint32_t, world::Frame>> early;
  std::vector<std::uint32_t> ended;  ///< ranks whose connection has ended already
  std::string provenance;            ///< who said who this process is, where rank 0 is, and how far it is trusted
};

/// Under which the world's processes make later connections to each other.
[[nodiscard]] world::GroupKey key_of_connections(const World& world);

/// Joins the world by `deadline`. `secret` is what its connections prove; `job` tells
/// one step's processes from another's at the same port; `node_name` replaces the host name unless it is empty. Errors:
/// timeout with the names of those that did not come, mismatch (sizes differ, a rank came twice), and what the root
/// address says.
[[nodiscard]] Result<World> join_world(const launch::ProcessIdentity& identity, RootAddress& root,
                                       const WorldSecret& secret, std::string_view job, const std::string& node_name,
                                       Clock::time_point deadline);
/// The world of one process that nobody started.
[[nodiscard]] World single_process_world(const std::string& node_name);

}  // namespace amldist::world
