// How the nodes of a step agree on the fabric: each sends a vote to srun, and all get the same answer before a program
// starts. If only one node used sockets, NCCL and UCX on the other nodes would wait for it for ever.
//
//   aml-dist;1;00c0ffee00c0ffee;fabric;2;4;prefer;good;0x0018;node3       node index, nodes, traits, host
//   aml-dist;1;00c0ffee00c0ffee;fabric;1;4;prefer;sick;-;node2: ib.state: mlx5_0:1 1: DOWN     and the reason
//   aml-dist;1;00c0ffee00c0ffee;fabric;1;4;require;torn;-;node1 -> node2 over mlx5_0:1: ...  between nodes
//   aml-dist;1;00c0ffee00c0ffee;fabric;2;4;require;ended;-;rdma=require failed on node2: ...   its check was killed
//   aml-dist;1;00c0ffee00c0ffee;not-yet | use-fabric | use-sockets | refuse-step               srun's answer
//
// Under `require` a sick node prints its reason itself. A failure between nodes would be printed by both ends, so srun
// prints it once; also that a check was killed, unless another node failed first and the end of the step killed it.
// Traits are values that must be equal on all nodes (partition keys). srun only compares them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "launch/option/spec.hpp"
#include "step/messages/control_message.hpp"

namespace amldist::step {

/// One node's vote.
struct FabricVote {
  std::uint32_t node = 0;
  std::uint32_t nodes = 1;
  launch::RdmaPolicy policy = launch::RdmaPolicy::prefer;
  bool passed = false;
  std::string traits;        ///< without ';'
  std::string text;          ///< passed: the host; else why not, in one sentence
  bool link_failed = false;  ///< not passed: the fault is between this node and another
  bool killed = false;       ///< not passed: a signal ended the check; under `require` the text is the whole line

  [[nodiscard]] std::string to_datagram(std::uint64_t token) const;
  /// nullopt for a datagram that to_datagram(token) cannot have written.
  [[nodiscard]] static std::optional<FabricVote> parse(std::string_view datagram, std::uint64_t token);

  friend bool operator==(const FabricVote&, const FabricVote&) = default;
};

/// srun's side: collects the votes and decides for all nodes.
class FabricTally {
 public:
  void take(const FabricVote& vote);
  /// A fault between nodes that no vote reports.
  void reject(launch::RdmaPolicy policy, const std::string& reason);
  /// As soon as one node has not passed or differs: refuse_step under its `require`, else use_sockets. use_fabric when
  /// all have passed, else not_yet.
  [[nodiscard]] MessageType answer() const noexcept;
  /// The message for the user, returned once: why the step uses sockets (prefer), or what is wrong between two nodes
  /// (require; a node that has not passed prints its own reason), or whose check was killed.
  [[nodiscard]] std::optional<std::string> line();
  /// Whether a node has not passed or differs; no later vote changes that.
  [[nodiscard]] bool is_lost() const noexcept { return !reason_.empty(); }

 private:
  std::set<std::uint32_t> passed_;
  std::uint32_t nodes_ = 0;
  std::string traits_;
  std::string first_host_;
  std::string reason_;
  bool differs_ = false;
  bool link_failed_ = false;
  bool killed_ = false;
  launch::RdmaPolicy policy_ = launch::RdmaPolicy::prefer;
  bool told_ = false;
};

}  // namespace amldist::step
