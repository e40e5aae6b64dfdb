// The rank table: where every rank of a world runs and listens. Rank 0 makes it when all have joined; it goes down the
// tree unchanged, and the ranks of a node read the same bytes in shared memory. It has one entry for each node, and six
// bytes for each rank.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/net/ip_address.hpp"
#include "base/text/result.hpp"

namespace amldist::world {

/// A node of the tree: processes that share one leader.
struct TableNode {
  std::string host;          ///< its host name, printable
  std::string name;          ///< equal for processes that share memory
  std::uint32_t leader = 0;  ///< rank
  IpAddress address;         ///< where its processes listen; unspecified: the host of rank 0
};

/// A rank's part of the table.
struct TableRank {
  std::uint32_t vertex = 0;  ///< index of its node in the tree
  std::uint16_t port = 0;    ///< of its listener
};

/// The bytes of a table, for processes of one machine type. `nonce`: random, the same on all ranks.
[[nodiscard]] std::string table_bytes(std::uint64_t nonce, std::span<const TableNode> nodes,
                                      std::span<const TableRank> ranks);

/// A view of a table in memory.
class RankTable {
 public:
  /// Bytes and the object that owns them.
  struct Storage {
    std::string_view bytes;
    std::shared_ptr<const void> owner;
  };
  /// `root`: the address by which this process reaches the host of rank 0. Every number in the bytes is checked once,
  /// here. Errors: peer, when they are not a table of `size` ranks.
  [[nodiscard]] static Result<RankTable> read(Storage storage, std::uint32_t size, const IpAddress& root);
  /// The same, owning its bytes.
  [[nodiscard]] static Result<RankTable> read(std::string bytes, std::uint32_t size, const IpAddress& root);
  RankTable() = default;

  [[nodiscard]] std::uint64_t nonce() const noexcept { return nonce_; }
  [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(vertex_of_rank_.size()); }
  [[nodiscard]] std::uint32_t vertices() const noexcept { return static_cast<std::uint32_t>(entries_.size()); }
  [[nodiscard]] std::string_view bytes() const noexcept { return storage_.bytes; }

  [[nodiscard]] std::uint32_t vertex_of(std::uint32_t rank) const noexcept { return vertex_of_rank_[rank]; }
  [[nodiscard]] std::uint32_t leader_of(std::uint32_t vertex) const noexcept { return entries_[vertex].leader; }
  /// By rank: how many ranks below it share its node.
  [[nodiscard]] std::vector<std::uint32_t> local_ranks() const;
  /// A number of the rank's node: equal for ranks that share memory.
  [[nodiscard]] std::uint32_t node_of(std::uint32_t rank) const noexcept { return entries_[vertex_of(rank)].node; }
  [[nodiscard]] const std::string& host_of(std::uint32_t rank) const noexcept { return hosts_[vertex_of(rank)]; }
  [[nodiscard]] IpAddress address_of(std::uint32_t rank) const noexcept;
  [[nodiscard]] std::uint16_t port_of(std::uint32_t rank) const noexcept { return port_of_rank_[rank]; }

  /// An entry as it is stored in the bytes.
  struct Entry {
    std::array<unsigned char, 16> address;
    std::uint32_t leader;
    std::uint32_t node;     ///< the first entry with the same name
    std::uint32_t host_at;  ///< in the text after the arrays
    std::uint32_t host_length;
  };

 private:
  Storage storage_;
  std::uint64_t nonce_ = 0;
  std::span<const Entry> entries_;
  std::span<const std::uint32_t> vertex_of_rank_;
  std::span<const std::uint16_t> port_of_rank_;
  std::vector<std::string> hosts_;  // by node
  IpAddress root_;
};

}  // namespace amldist::world
