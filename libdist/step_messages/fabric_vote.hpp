// How the nodes of a step agree on the fabric: each votes at srun, and all get the same answer before a program starts.
// A node that fell back to sockets alone would make NCCL and UCX wait for it for ever.
//
//   aml-dist;1;00c0ffee00c0ffee;fabric;2;4;prefer;good;0x0018/-;node3                    node index, nodes, traits,
//   host aml-dist;1;00c0ffee00c0ffee;fabric;1;4;prefer;sick;-;node2: ib.state: mlx5_0:1 1: DOWN     the reason behind
//   it aml-dist;1;00c0ffee00c0ffee;not-yet | use-fabric | use-sockets                       srun's answer
//
// Traits are what must be equal on all nodes (partition key, GID index); srun only compares them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "core/spec.hpp"
#include "step_messages/control_message.hpp"

namespace amldist {

/// One node's vote.
struct FabricVote {
  std::uint32_t node = 0;
  std::uint32_t nodes = 1;
  RdmaPolicy policy = RdmaPolicy::prefer;
  bool good = false;
  std::string traits;  ///< without ';'
  std::string text;    ///< good: the host; sick: why, in one sentence

  [[nodiscard]] std::string to_datagram(std::uint64_t token) const;
  /// nullopt for a datagram that to_datagram(token) cannot have written.
  [[nodiscard]] static std::optional<FabricVote> parse(std::string_view datagram, std::uint64_t token);

  friend bool operator==(const FabricVote&, const FabricVote&) = default;
};

/// srun's side: collects votes and says what holds for all.
class FabricTally {
 public:
  void take(const FabricVote& vote);
  /// use_sockets as soon as one is sick or differs, use_fabric when all have voted well, else not_yet.
  [[nodiscard]] MessageType answer() const noexcept;
  /// The one line for the user, once: why the step uses sockets (prefer), or how two nodes differ (require; a sick node
  /// says the rest itself).
  [[nodiscard]] std::optional<std::string> line();

 private:
  std::set<std::uint32_t> good_;
  std::uint32_t nodes_ = 0;
  std::string traits_;
  std::string first_host_;
  std::string reason_;
  bool differs_ = false;
  RdmaPolicy policy_ = RdmaPolicy::prefer;
  bool told_ = false;
};

}  // namespace amldist
