// The parts that all hierarchical algorithms share: leaders, rails, and the steps inside a node.
#include "collective/algorithms/hierarchical/hierarchical_collectives.hpp"

#include <algorithm>

#include "collective/algorithms/hierarchical/bundles.hpp"
#include "collective/kernels/copy_bytes.hpp"

namespace amldist::collective {

HierarchicalCollectives::HierarchicalCollectives(const Topology& topology, Transport& transport,
                                                 const Reductions& kernels, PeerCollectives& all, NodeCollectives* node)
    : topology_(topology), transport_(transport), kernels_(kernels), all_(all), node_(node) {
  PeerGroup leaders;
  PeerGroup rail;
  for (const auto& ranks : topology.nodes) {
    leaders.ranks.push_back(ranks.front());
    if (topology.own_index < ranks.size()) rail.ranks.push_back(ranks[topology.own_index]);
  }
  leaders.own = rail.own = topology.own_node;
  if (topology.own_index == 0) leaders_.emplace(transport, std::move(leaders), kernels);
  if (topology.own_index < topology.fewest_on_a_node()) rail_.emplace(transport, std::move(rail), kernels);
}

void HierarchicalCollectives::begin_call(std::uint32_t signature, calls::Watchdog& watchdog) noexcept {
  signature_ = signature;
  watchdog_ = &watchdog;
  if (leaders_) leaders_->begin_call(signature, watchdog);
  if (rail_) rail_->begin_call(signature, watchdog);
}

PeerCollectives& HierarchicalCollectives::agents(int agent) {
  if (!agents_ || agents_for_ != agent) {
    PeerGroup group;
    for (const auto& ranks : topology_.nodes) group.ranks.push_back(ranks.front());
    group.ranks[topology_.node_of(agent)] = agent;
    group.own = topology_.own_node;
    agents_.emplace(transport_, std::move(group), kernels_);
    agents_for_ = agent;
  }
  agents_->begin_call(signature_, *watchdog_);
  return *agents_;
}

int HierarchicalCollectives::agent_of(std::size_t node, int root) const {
  return node == topology_.node_of(root) ? root : topology_.nodes[node].front();
}

Message HierarchicalCollectives::message(int rank, const std::byte* data, std::size_t bytes) const {
  return {rank, const_cast<std::byte*>(data), bytes, signature_, false};  // NOLINT: a send only reads
}

std::size_t HierarchicalCollectives::ranks() const { return all_.group().size(); }

std::size_t HierarchicalCollectives::shares_of(std::size_t node) const {
  const std::size_t theirs = topology_.nodes[node].size();
  const std::size_t here = topology_.own_ranks().size();
  return theirs > topology_.own_index ? (theirs - topology_.own_index + here - 1) / here : 0;
}

std::byte* HierarchicalCollectives::stage(std::size_t bytes) {
  if (piece_.size() < bytes) piece_.resize(bytes);
  return piece_.data();
}

calls::BlockList HierarchicalCollectives::blocks_of_node(std::size_t node, const calls::Blocks& blocks) const {
  calls::BlockList out;
  for (const int rank : topology_.nodes[node]) {
    out.add(blocks.count(static_cast<std::size_t>(rank)), blocks.offset(static_cast<std::size_t>(rank)));
  }
  return out;
}

Result<void> HierarchicalCollectives::gather_in_node(const std::byte* send, std::byte* to, const calls::Blocks& blocks,
                                                     std::size_t unit, std::uint32_t index) {
  if (node_ != nullptr) return node_->gather(send, to, blocks, unit, index);
  copy_bytes(to + blocks.offset(0) * unit, send, blocks.count(0) * unit);
  return {};
}

Result<void> HierarchicalCollectives::scatter_in_node(const std::byte* from, std::byte* recv,
                                                      const calls::Blocks& blocks, std::size_t unit,
                                                      std::uint32_t index) {
  if (node_ != nullptr) return node_->scatter(from, recv, blocks, unit, index);
  copy_bytes(recv, from + blocks.offset(0) * unit, blocks.count(0) * unit);
  return {};
}

/// Messages with each rank on another node, for its block.
std::vector<Message> HierarchicalCollectives::blocks_of_others(const std::byte* buffer, const calls::Blocks& blocks,
                                                               std::size_t unit) const {
  std::vector<Message> out;
  for (std::size_t n = 0; n < topology_.nodes.size(); ++n) {
    if (n == topology_.own_node) continue;
    for (const int rank : topology_.nodes[n]) {
      const auto r = static_cast<std::size_t>(rank);
      out.push_back(message(rank, buffer + blocks.offset(r) * unit, blocks.count(r) * unit));
    }
  }
  return out;
}

/// Messages with the leader of each other node, for the equal blocks of all its ranks: directly in the buffer if they
/// are contiguous there, else in the staging buffer, which the caller must copy to or from.
std::vector<Message> HierarchicalCollectives::bundles_of_others(const std::byte* buffer, const calls::Blocks& blocks,
                                                                std::size_t unit) {
  const std::size_t block = blocks.count(0) * unit;
  const std::byte* staged = stage(ranks() * block);
  std::vector<Message> out;
  for (std::size_t n = 0; n < topology_.nodes.size(); ++n) {
    if (n == topology_.own_node) continue;
    const auto& theirs = topology_.nodes[n];
    const std::byte* const place = buffer + blocks.offset(static_cast<std::size_t>(theirs.front())) * unit;
    out.push_back(message(theirs.front(), are_joined(theirs, blocks) ? place : staged, theirs.size() * block));
    staged += out.back().bytes;
  }
  return out;
}

}  // namespace amldist::collective
