// Rank 0's list of the ranks that have joined, and the place of each node in the tree. Pure: no sockets, no clock.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "world/bootstrap/rank_table.hpp"
#include "world/wireup/join_request.hpp"

namespace amldist::world {

/// A process as its leader reports it.
struct JoinedProcess {
  std::uint32_t rank = 0;
  std::uint32_t vertex = 0;   ///< index of its leader
  std::uint16_t port = 0;     ///< of its listener
  std::uint64_t process = 0;  ///< wireup::JoinRequest::process
  std::uint64_t size = 1;     ///< of the world, as the process was told
};

/// A leader's place in the tree.
struct TreePosition {
  std::uint32_t index = 0;
  std::uint32_t parent_rank = 0;  ///< the leader above
  IpAddress parent_address;       ///< unspecified: the host of rank 0
  std::uint16_t parent_port = 0;
  [[nodiscard]] bool is_below_root() const noexcept;
};

class JoinedRanks {
 public:
  /// `group` as in the join requests.
  explicit JoinedRanks(world::Group group);

  /// Adds a leader, which is a rank too. It gets the next index; a process that asks again gets its old one.
  TreePosition add_leader(const world::JoinRequest& join_request, TableNode node, std::uint16_t port);
  void add(const JoinedProcess& joined);

  /// Why the world cannot be formed: two processes with one rank, or different sizes. Empty if there is no
  /// contradiction.
  [[nodiscard]] const std::string& contradiction() const noexcept { return contradiction_; }
  [[nodiscard]] bool is_complete() const noexcept { return present_ == group_.size && contradiction_.empty(); }
  /// Whether every rank has joined, even if some are contradictory.
  [[nodiscard]] bool have_all_been_seen() const noexcept { return seen_count_ == group_.size; }
  void mark_seen(std::uint64_t rank);
  /// Ranks that have not joined.
  [[nodiscard]] std::vector<std::uint32_t> missing() const;
  [[nodiscard]] std::uint32_t present() const noexcept { return present_; }
  [[nodiscard]] const std::vector<TableNode>& nodes() const noexcept { return nodes_; }
  /// wireup::JoinRequest::process; 0 if the rank has not joined.
  [[nodiscard]] const std::vector<std::uint64_t>& process_of_rank() const noexcept { return process_of_rank_; }
  /// Only valid when complete.
  [[nodiscard]] std::string table(std::uint64_t nonce) const { return table_bytes(nonce, nodes_, ranks_); }

 private:
  [[nodiscard]] TreePosition position_of(std::uint32_t index) const;
  void enter(const world::JoinRequest& join_request, const JoinedProcess& joined);

  const world::Group group_;
  std::vector<TableNode> nodes_;
  std::vector<TableRank> ranks_;
  std::vector<std::uint64_t> process_of_rank_;  // 0: has not joined
  std::vector<bool> seen_;
  std::uint32_t present_ = 0;
  std::uint32_t seen_count_ = 0;
  std::map<std::uint64_t, std::uint32_t> index_of_process_;  // leaders
  std::string contradiction_;
};

}  // namespace amldist::world
