// Small all-gathers over the tree of a communicator: pieces go up, are joined on the way where they are equal, and the
// whole comes down. Those of a node go to its first rank and back. No sockets, no clock; used by the control thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "calls/pieces.hpp"
#include "world/control/comm_tree.hpp"
#include "world/control/control_frame.hpp"

namespace amldist::world {

/// Tells gathers apart.
struct GatherKey {
  std::uint64_t communicator = 0;
  std::uint64_t number = 0;
  // NOLINTNEXTLINE(modernize-use-nullptr): in what the compiler writes
  friend auto operator<=>(const GatherKey&, const GatherKey&) = default;
};

class TreeGather {
 public:
  struct Outside {
    std::function<void(std::uint32_t world_rank, const std::string& frame)> send_to;
    std::function<void(const GatherKey& key, calls::Pieces pieces)> on_complete;
  };
  explicit TreeGather(Outside outside) : outside_(std::move(outside)) {}

  /// Whom a rank exchanges pieces with.
  struct Neighbours {
    std::optional<std::uint32_t> parent;  ///< nullopt: this rank is the root
    std::vector<std::uint32_t> children;
    std::size_t ranks = 1;  ///< below it, and itself
  };
  /// This rank gives its piece. `rank`: of the communicator.
  void begin(const GatherKey& key, std::uint32_t rank, std::string piece, Neighbours neighbours);
  void on_piece(Frame& frame);
  void on_pieces(Frame& frame);
  /// What came for a communicator that has ended.
  void forget(std::uint64_t communicator);

 private:
  struct Gathering {
    calls::Pieces pieces;
    std::optional<Neighbours> neighbours;  ///< set when this rank has begun
  };
  void advance(std::map<GatherKey, Gathering>::iterator at);
  void finish(std::map<GatherKey, Gathering>::iterator at, calls::Pieces pieces);

  Outside outside_;
  std::map<GatherKey, Gathering> gatherings_;
};

/// A rank's neighbours in a gather over the whole communicator, or over the ranks of its node.
[[nodiscard]] TreeGather::Neighbours neighbours_in_tree(const CommTree& tree, std::uint32_t world_rank);
[[nodiscard]] TreeGather::Neighbours neighbours_in_node(const RankTable& table, std::span<const std::uint32_t> members,
                                                        std::uint32_t world_rank);

}  // namespace amldist::world
