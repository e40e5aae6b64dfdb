#include "collective/algorithms/hierarchical_collectives.hpp"

#include <algorithm>

#include "collective/kernels/copy_bytes.hpp"

namespace amldist::collective {
namespace {

// Between nodes: up to here one message of a node's leader is quicker than slices of all its ranks.
constexpr std::size_t by_leaders_up_to = 4096;
// The same for a reduce-scatter that is made as an all-reduce: bytes of all blocks.
constexpr std::size_t scattered_by_leaders_up_to = 32768;
// What reduce and reduce-scatter take through their own memory at once.
constexpr std::size_t longest_piece = 1UL << 20;

std::uint32_t index_of(const std::vector<int>& ranks, int rank) {
  return static_cast<std::uint32_t>(std::ranges::find(ranks, rank) - ranks.begin());
}

}  // namespace

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

void HierarchicalCollectives::begin_call(std::uint32_t signature, Watchdog& watchdog) noexcept {
  signature_ = signature;
  watchdog_ = &watchdog;
  if (leaders_) leaders_->begin_call(signature, watchdog);
  if (rail_) rail_->begin_call(signature, watchdog);
}

Result<void> HierarchicalCollectives::allreduce(const Reduction& what) {
  const bool small = what.count * size_of(what.type) <= by_leaders_up_to;
  return small || topology_.fewest_on_a_node() == 1 ? allreduce_by_leaders(what) : allreduce_by_slices(what);
}

Result<void> HierarchicalCollectives::allreduce_by_leaders(const Reduction& what) {
  if (node_) {
    if (auto done = node_->reduce(what, 0); !done) return done;
  } else {
    copy_bytes(what.recv, what.send, what.count * size_of(what.type));
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
  for (std::size_t n = 0; n < topology_.nodes.size(); ++n) group.ranks.push_back(agent_of(n, agent));
  group.own = topology_.own_node;
  PeerCollectives out(transport_, std::move(group), kernels_);
  out.begin_call(signature_, *watchdog_);
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

Result<void> HierarchicalCollectives::barrier() {
  if (node_) {
    if (auto done = node_->barrier(); !done) return done;
  }
  if (leaders_) {
    if (auto done = leaders_->barrier(); !done) return done;
  }
  return node_ ? node_->barrier() : Result<void>();
}

/// Small ones as a whole; others in pieces of all blocks, so that no buffer grows with the message.
Result<void> HierarchicalCollectives::reduce_scatter(const Reduction& what, const Blocks& blocks) {
  const std::size_t unit = size_of(what.type);
  if (what.count * ranks() * unit <= scattered_by_leaders_up_to) {
    Reduction whole = what;
    whole.count = what.count * ranks();
    whole.recv = stage(whole.count * unit);
    if (auto done = allreduce_by_leaders(whole); !done) return done;
    const auto own = static_cast<std::size_t>(topology_.own_ranks()[topology_.own_index]);
    copy_bytes(what.recv, whole.recv + blocks.offset(own) * unit, what.count * unit);
    return {};
  }
  const std::size_t shares = topology_.nodes.size() * (1 + topology_.most_on_a_node() / topology_.fewest_on_a_node());
  const std::size_t most = std::max<std::size_t>(1, longest_piece / unit / shares);
  for (std::size_t at = 0; at < what.count; at += most) {
    if (auto done = reduce_scatter_piece(what, at, std::min(most, what.count - at)); !done) return done;
  }
  return {};
}

/// Elements at..at+count of every block: this rank sums, over its node, those of its peers on the other nodes; then
/// each takes its own from the peers.
Result<void> HierarchicalCollectives::reduce_scatter_piece(const Reduction& what, std::size_t at, std::size_t count) {
  const std::size_t bytes = count * size_of(what.type);
  const std::size_t nodes = topology_.nodes.size();
  const std::size_t here = topology_.own_ranks().size();
  std::size_t sums = 0;
  for (std::size_t n = 0; n < nodes; ++n) sums += shares_of(n);
  std::byte* const from_peers = stage((sums + nodes) * bytes) + sums * bytes;
  if (auto done = reduce_in_node(what, at, count); !done) return done;
  std::vector<Message> sends;
  std::vector<Message> receives;
  std::vector<const void*> sources(nodes);
  const std::byte* sum = piece_.data();
  for (std::size_t n = 0; n < nodes; ++n) {
    const auto& theirs = topology_.nodes[n];
    sources[n] = n == topology_.own_node ? sum : from_peers + n * bytes;
    if (n != topology_.own_node) {
      receives.push_back(message(theirs[topology_.own_index % theirs.size()], from_peers + n * bytes, bytes));
      for (std::size_t j = topology_.own_index; j < theirs.size(); j += here) {
        sends.push_back(message(theirs[j], sum + (j / here) * bytes, bytes));
      }
    }
    sum += shares_of(n) * bytes;
  }
  if (auto done = transport_.exchange(sends, receives, *watchdog_); !done) return done;
  kernels_.fold({what.recv + at * size_of(what.type), nullptr, sources.data(), nodes, count, 1, Store::cached},
                what.type, what.op);
  return {};
}

/// The node's sums of these elements of every block, each on the rank that has it as its share, at the front of the
/// stage.
Result<void> HierarchicalCollectives::reduce_in_node(const Reduction& what, std::size_t at, std::size_t count) {
  const std::size_t unit = size_of(what.type);
  const std::size_t here = topology_.own_ranks().size();
  Reduction in_node = what;
  in_node.recv = piece_.data();
  for (const auto& theirs : topology_.nodes) {
    for (std::size_t first = 0; first < theirs.size(); first += here) {
      BlockList blocks;
      for (std::size_t j = first; j < first + here; ++j) {
        const bool is_there = j < theirs.size();
        blocks.add(is_there ? count : 0, is_there ? static_cast<std::size_t>(theirs[j]) * what.count + at : 0);
      }
      if (node_) {
        if (auto done = node_->reduce_scatter(in_node, blocks.view()); !done) return done;
      } else {
        copy_bytes(in_node.recv, what.send + blocks.view().offset(0) * unit, count * unit);
      }
      in_node.recv += blocks.view().count(topology_.own_index) * unit;
    }
  }
  return {};
}

// ---- common ----
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

}  // namespace amldist::collective
