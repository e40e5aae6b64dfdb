// How the processes of a step become a world: those of a node connect to their leader (node_leader.hpp), the leaders to
// rank 0, which gives each its place in a tree (tree_builder.hpp). The connections of the tree stay open as control
// connections. README.md explains the whole.
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

/// On rank 0: keeps listening after the start, and refuses processes that come too late, such as those of another job
/// with the same MASTER_PORT.
struct LateJoiners {
  FileDescriptor listener;
  world::GroupKey key;
  std::string group;
  std::vector<std::uint64_t> process_of_rank;  ///< wireup::JoinRequest::process
  std::shared_ptr<const world::SecretFile>
      secret;  ///< read by those who connect; if there is one, removed with this object
};

/// Whether both numbers belong to one process, which may be in several worlds one after the other.
[[nodiscard]] bool is_same_process(std::uint64_t one, std::uint64_t other) noexcept;

/// The result of the bootstrap.
struct World {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  RankTable table;
  Integrity integrity = Integrity::off;
  std::string tcp_congestion;                  ///< of the connections that carry data (Settings)
  world::Credentials credentials;              ///< what strangers do not know
  FileDescriptor listener;                     ///< the world's key and name
  std::optional<LateJoiners> late_joiners;     ///< on rank 0, if another world might choose the same port
  std::vector<std::uint64_t> process_of_rank;  ///< the same, until late_joiners is made
  FrameLinks::Links links;                     ///< to the leader above, the leaders below and the ranks of the node
  /// Frames that arrived over them before the control thread was running.
  std::vector<std::pair<std::uint32_t, world::Frame>> early;
  std::vector<std::uint32_t> ended;  ///< ranks whose connection has ended already
  std::string provenance;            ///< who said who this process is and where rank 0 is, and how far it is trusted
};

/// The key under which the world's processes make later connections to each other.
[[nodiscard]] world::GroupKey key_of_connections(const World& world);

/// Joins the world by `deadline`. `secret` is what its connections prove; `job` tells one step's processes from
/// another's at the same port; `node_name` replaces the host name unless it is empty. Errors: timeout with the names of
/// those that did not join, mismatch (sizes differ, a rank came twice), and errors of the root address.
[[nodiscard]] Result<World> join_world(const launch::ProcessIdentity& identity, RootAddress& root,
                                       const WorldSecret& secret, std::string_view job, const std::string& node_name,
                                       Clock::time_point deadline);
/// The world of one process that no launcher started.
[[nodiscard]] World single_process_world(const std::string& node_name);

}  // namespace amldist::world
