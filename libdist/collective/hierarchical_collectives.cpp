#include "collective/hierarchical_collectives.hpp"

#include <algorithm>
#include <cstring>

namespace amldist::collective {
namespace {

// Between nodes: up to here one message of a node's leader is quicker than slices of all its ranks.
constexpr std::size_t by_leaders_up_to = 4096;
// What reduce and reduce-scatter take through their own memory at once.
constexpr std::size_t longest_piece = 1UL << 20;

std::uint32_t index_of(const std::vector<int>& ranks, int rank) {
  return static_cast<std::uint32_t>(std::ranges::find(ranks, rank) - ranks.begin());
}

}  // namespace

HierarchicalCollectives::HierarchicalCollectives(const Topology& topology, Transport& transport,
                                                 const Reductions& kernels, NodeCollectives* node)
    : topology_(topology), transport_(transport), kernels_(kernels), node_(node) {
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

void HierarchicalCollectives::begin_call(std::uint32_t signature, Vigil& vigil) noexcept {
  signature_ = signature;
  vigil_ = &vigil;
  if (leaders_) leaders_->begin_call(signature, vigil);
  if (rail_) rail_->begin_call(signature, vigil);
}

Result<void> HierarchicalCollectives::allreduce(const Reduction& what) {
  const bool small = what.count * size_of(what.type) <= by_leaders_up_to;
  return small || topology_.fewest_on_a_node() == 1 ? allreduce_by_leaders(what) : allreduce_by_slices(what);
}

Result<void> HierarchicalCollectives::allreduce_by_leaders(const Reduction& what) {
  if (node_) {
    if (auto done = node_->reduce(what, 0); !done) return done;
  } else if (what.send != what.recv) {
    std::memcpy(what.recv, what.send, what.count * size_of(what.type));
  }
  if (leaders_) {
    Reduction between = what;
    between.send = what.recv;
    if (auto done = leaders_->allreduce(between); !done) return done;
  }
  return node_ ? node_->broadcast(what.recv, what.count * size_of(what.type), 0) : Result<void>();
}

/// Every rank of a node takes one slice of the node's sum to its peers on the other nodes.
Result<void> HierarchicalCollectives::allreduce_by_slices(const Reduction& what) {
  const std::size_t unit = size_of(what.type);
  const std::size_t rails = topology_.fewest_on_a_node();
  const std::size_t ranks = topology_.own_ranks().size();
  const std::size_t grain = 64 / unit;
  const std::size_t each = ((what.count + rails - 1) / rails + grain - 1) / grain * grain;
  std::vector<std::size_t> offsets(ranks);
  std::vector<std::size_t> counts(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    offsets[r] = std::min(what.count, r * each);
    counts[r] = r < rails ? std::min(what.count, (r + 1) * each) - offsets[r] : 0;
  }
  const Blocks blocks(counts, offsets);
  std::byte* const slice = what.recv + offsets[topology_.own_index] * unit;
  Reduction mine = what;
  mine.recv = slice;
  if (node_) {
    if (auto done = node_->reduce_scatter(mine, blocks); !done) return done;
  }
  if (rail_) {
    mine.send = slice;
    mine.count = counts[topology_.own_index];
    if (auto done = rail_->allreduce(mine); !done) return done;
  }
  return node_ ? node_->allgather(slice, what.recv, blocks, unit) : Result<void>();
}

PeerCollectives HierarchicalCollectives::agents(int agent) {
  PeerGroup group;
  const std::size_t home = topology_.node_of(agent);
  for (std::size_t n = 0; n < topology_.nodes.size(); ++n) {
    group.ranks.push_back(n == home ? agent : topology_.nodes[n].front());
  }
  group.own = topology_.own_node;
  PeerCollectives out(transport_, std::move(group), kernels_);
  out.begin_call(signature_, *vigil_);
  return out;
}

Result<void> HierarchicalCollectives::reduce(const Reduction& what, int root) {
  const std::size_t unit = size_of(what.type);
  const bool is_root = is(root);
  PeerCollectives between = agents(root);
  const int agent = between.group().ranks[topology_.own_node];
  const bool is_agent = is(agent);
  const std::size_t most = longest_piece / unit;
  for (std::size_t at = 0; at < what.count; at += most) {
    Reduction part = what;
    part.count = std::min(most, what.count - at);
    part.send = what.send + at * unit;
    if (!is_root && piece_.size() < part.count * unit) piece_.resize(part.count * unit);
    part.recv = is_root ? what.recv + at * unit : piece_.data();
    if (node_) {
      if (auto done = node_->reduce(part, index_of(topology_.own_ranks(), agent)); !done) return done;
      part.send = part.recv;
    }
    if (!is_agent) continue;
    if (auto done = between.reduce(part, topology_.node_of(root)); !done) return done;
  }
  return {};
}

Result<void> HierarchicalCollectives::broadcast(std::byte* buffer, std::size_t bytes, int root) {
  PeerCollectives between = agents(root);
  const int agent = between.group().ranks[topology_.own_node];
  if (is(agent)) {
    if (auto done = between.broadcast(buffer, bytes, topology_.node_of(root)); !done) return done;
  }
  if (!node_) return {};
  return node_->broadcast(buffer, bytes, index_of(topology_.own_ranks(), agent));
}

/// Every rank gathers the blocks of its peers on the other nodes, then the node's ranks share what they have.
Result<void> HierarchicalCollectives::allgather(const std::byte* send, std::byte* recv, const Blocks& blocks,
                                                std::size_t unit) {
  const std::size_t index = topology_.own_index;
  std::vector<std::size_t> counts(topology_.nodes.size());
  std::vector<std::size_t> offsets(topology_.nodes.size());
  const auto fill = [&](auto rank_at, std::size_t number) {
    counts.resize(number);
    offsets.resize(number);
    for (std::size_t i = 0; i < number; ++i) {
      counts[i] = blocks.count(static_cast<std::size_t>(rank_at(i)));
      offsets[i] = blocks.offset(static_cast<std::size_t>(rank_at(i)));
    }
  };
  fill([&](std::size_t n) { return topology_.nodes[n][index]; }, topology_.nodes.size());
  if (auto done = rail_->allgather(send, recv, Blocks(counts, offsets), unit); !done) return done;
  for (std::size_t n = 0; node_ && n < topology_.nodes.size(); ++n) {
    fill([&](std::size_t i) { return topology_.nodes[n][i]; }, topology_.nodes[n].size());
    if (auto done = node_->allgather(recv + offsets[index] * unit, recv, Blocks(counts, offsets), unit); !done)
      return done;
  }
  return {};
}

Result<void> HierarchicalCollectives::barrier() {
  if (node_) {
    if (auto done = node_->barrier(); !done) return done;
  }
  if (leaders_) {
    if (auto done = leaders_->barrier(); !done) return done;
  }
  return node_ ? node_->barrier() : Result<void>();
}

/// In pieces of all blocks, so that no buffer grows with the message.
Result<void> HierarchicalCollectives::reduce_scatter(const Reduction& what) {
  const std::size_t unit = size_of(what.type);
  const std::size_t most = std::max<std::size_t>(1, longest_piece / unit / topology_.nodes.size());
  for (std::size_t at = 0; at < what.count; at += most) {
    const std::size_t count = std::min(most, what.count - at);
    if (auto done = reduce_scatter_piece(what, at, count); !done) return done;
  }
  return {};
}

/// Elements at..at+count of every block: this rank sums, over its node, those for itself and its peers on the other
/// nodes; then each takes its own from the peers.
Result<void> HierarchicalCollectives::reduce_scatter_piece(const Reduction& what, std::size_t at, std::size_t count) {
  const std::size_t unit = size_of(what.type);
  const std::size_t nodes = topology_.nodes.size();
  if (piece_.size() < nodes * count * unit) piece_.resize(nodes * count * unit);
  std::vector<std::size_t> counts(topology_.own_ranks().size(), count);
  std::vector<std::size_t> offsets(counts.size());
  for (std::size_t n = 0; n < nodes; ++n) {
    Reduction in_node = what;
    in_node.recv = piece_.data() + n * count * unit;
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      offsets[i] = static_cast<std::size_t>(topology_.nodes[n][i]) * what.count + at;
    }
    in_node.count = what.count * nodes * offsets.size();
    if (auto done = node_->reduce_scatter(in_node, Blocks(counts, offsets)); !done) return done;
  }
  Reduction between = what;
  between.send = piece_.data();
  between.recv = what.recv + at * unit;
  between.count = nodes * count;
  return rail_->reduce_scatter(between, Blocks(count));
}

}  // namespace amldist::collective
