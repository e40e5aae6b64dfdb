// A leader while the world is formed: it connects to its parent in the tree, and accepts the ranks of its node and the
// leaders below. It reports joined ranks upwards in batches; rank 0's table comes down.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "world/bootstrap/frame_links.hpp"
#include "world/bootstrap/joined_ranks.hpp"
#include "world/bootstrap/root_address.hpp"
#include "world/wireup/pending_connections.hpp"

namespace amldist::world {

/// Kinds of bootstrap's frames.
enum class BootstrapKind : std::uint8_t {
  place = 16,  ///< from the root to a leader: where it is in the tree
  joined,      ///< up the tree: ranks that have joined
  table,       ///< down the tree: the rank table
  table_file,  ///< to the ranks of the node: the same in shared memory
};

/// The purpose of a join request: its first further field.
enum class JoinPurpose : std::uint8_t {
  leader = 1,
  child,
  follower,
  heard,  ///< a leader names ranks of its node that it has told of a refusal
};

/// What others are told about this process.
struct OwnPlace {
  explicit OwnPlace(world::GroupKey proven) : key(std::move(proven)) {}

  world::GroupKey key;     ///< what all connections prove
  std::string group;       ///< of connections between nodes
  std::string node_group;  ///< of those inside the node
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::uint64_t process = 0;
  std::string node;
  std::string host;
  std::uint16_t port = 0;

  [[nodiscard]] std::string join_request(JoinPurpose purpose) const;
  [[nodiscard]] std::string join_request_about(std::span<const std::uint32_t> heard) const;
};

/// The result for a leader when the world is complete.
struct BuiltTree {
  RankTable table;
  FrameLinks::Links links;
  std::vector<std::pair<std::uint32_t, world::Frame>>
      early;                                   ///< arrived before the control thread was running: rank, frame
  std::vector<std::uint32_t> ended;            ///< ranks whose connection has ended already
  std::vector<std::uint64_t> process_of_rank;  ///< at the root
};

class TreeBuilder {
 public:
  /// `listener` for leaders, `node_listener` for the ranks of the node; the latter may be invalid. All must outlive
  /// this.
  TreeBuilder(const OwnPlace& own, const FileDescriptor& listener, const FileDescriptor& node_listener);

  /// Rank 0. `published`: the address to which the others connect first.
  [[nodiscard]] Result<BuiltTree> serve_as_root(const FileDescriptor& published, RootAddress& root,
                                                Clock::time_point deadline);
  /// Any other leader.
  [[nodiscard]] Result<BuiltTree> serve_as_leader(RootAddress& root, Clock::time_point deadline);

 private:
  [[nodiscard]] Result<void> climb(RootAddress& root, Clock::time_point deadline);
  [[nodiscard]] Result<bool> connect_to_parent(const TreePosition& place, Clock::time_point deadline);
  void serve_once(const FileDescriptor* published, Clock::time_point deadline);
  void accept_followers();
  void on_join_request(FileDescriptor connection, world::Frame frame);
  void note_who_heard(world::JoinRequest& join_request, JoinPurpose purpose);
  void let_leader_in(FileDescriptor connection, world::JoinRequest& join_request);
  void on_frame(FrameLink& link, world::Frame& frame);
  void on_end(const FrameLink& link);
  void note(const JoinedProcess& joined);
  void send_joined();
  void distribute(std::string_view table);
  void await_children(Clock::time_point end);
  void refuse_all(const Error& error);
  Result<BuiltTree> give_up(Error error);
  Result<BuiltTree> leave(RootAddress& root, const Error& error);
  void report_who_heard(RootAddress& root);
  Result<BuiltTree> refuse_those_who_come(const FileDescriptor& published, RootAddress& root,
                                          Clock::time_point deadline);
  [[nodiscard]] Error missing() const;
  [[nodiscard]] Result<BuiltTree> built();

  const OwnPlace& own_;
  const FileDescriptor& listener_;
  const FileDescriptor& node_listener_;
  world::PendingConnections pending_;
  FrameLinks links_;
  FrameLink* parent_ = nullptr;
  std::vector<FrameLink*> children_;
  std::vector<FrameLink*> followers_;
  std::vector<std::uint32_t> came_below_;  ///< ranks that have ever been among children_
  bool is_distributed_ = false;            ///< the table
  std::uint32_t index_ = 0;
  IpAddress root_address_;
  JoinedRanks joined_ranks_;  // at the root
  std::vector<JoinedProcess> joined_;
  Clock::time_point joined_due_ = Clock::time_point::max();
  std::optional<Error> refused_;
  std::vector<std::uint32_t> heard_;  ///< of the node, told of that refusal
  std::string table_;
  RankTable::Storage shared_;  ///< the same, if the node has a shared copy
  std::vector<std::pair<std::uint32_t, world::Frame>> early_;
  std::vector<std::uint32_t> ended_;
};

/// Reads a follower's result from its leader's frame. Errors: peer; why the world was not formed.
[[nodiscard]] Result<RankTable> receive_table(const FileDescriptor& leader, std::uint32_t size,
                                              Clock::time_point deadline);

}  // namespace amldist::world
