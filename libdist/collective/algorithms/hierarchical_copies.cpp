// What moves data between the ranks of several nodes without combining it. Short blocks are bundled: one message from
// node to node; long ones go straight from rank to rank, and over shared memory inside a node.
#include <algorithm>
#include <utility>

#include "collective/algorithms/hierarchical_collectives.hpp"
#include "collective/kernels/copy_bytes.hpp"

namespace amldist::collective {
namespace {

// Measured by tests/bench/between_nodes.
constexpr std::size_t gathered_by_leaders_up_to = 65536;  // bytes of all blocks
constexpr std::size_t bundled_up_to = 4096;               // bytes of a block, to and from a root
constexpr std::size_t exchanged_by_leaders_up_to = 4096;  // bytes of a block
constexpr std::size_t largest_bundle = 1UL << 20;         // of all blocks of a node's ranks

std::uint32_t index_of(const std::vector<int>& ranks, int rank) {
  return static_cast<std::uint32_t>(std::ranges::find(ranks, rank) - ranks.begin());
}

/// Whether the blocks of these ranks lie one behind the other.
bool are_joined(const std::vector<int>& ranks, const Blocks& blocks) {
  std::size_t next = blocks.offset(static_cast<std::size_t>(ranks.front()));
  for (const int rank : ranks) {
    if (blocks.offset(static_cast<std::size_t>(rank)) != next) return false;
    next += blocks.count(static_cast<std::size_t>(rank));
  }
  return true;
}

/// Copies the blocks of these ranks into a bundle, or out of one.
void pack(const std::vector<int>& ranks, const std::byte* from, const Blocks& blocks, std::size_t unit, std::byte* to) {
  for (const int rank : ranks) {
    const auto r = static_cast<std::size_t>(rank);
    copy_bytes(to, from + blocks.offset(r) * unit, blocks.count(r) * unit);
    to += blocks.count(r) * unit;
  }
}
void unpack(const std::vector<int>& ranks, const std::byte* from, std::byte* to, const Blocks& blocks,
            std::size_t unit) {
  for (const int rank : ranks) {
    const auto r = static_cast<std::size_t>(rank);
    copy_bytes(to + blocks.offset(r) * unit, from, blocks.count(r) * unit);
    from += blocks.count(r) * unit;
  }
}

}  // namespace

// ---- common ----
BlockList HierarchicalCollectives::blocks_of_node(std::size_t node, const Blocks& blocks) const {
  BlockList out;
  for (const int rank : topology_.nodes[node]) {
    out.add(blocks.count(static_cast<std::size_t>(rank)), blocks.offset(static_cast<std::size_t>(rank)));
  }
  return out;
}

Result<void> HierarchicalCollectives::gather_in_node(const std::byte* send, std::byte* to, const Blocks& blocks,
                                                     std::size_t unit, std::uint32_t index) {
  if (node_) return node_->gather(send, to, blocks, unit, index);
  copy_bytes(to + blocks.offset(0) * unit, send, blocks.count(0) * unit);
  return {};
}

Result<void> HierarchicalCollectives::scatter_in_node(const std::byte* from, std::byte* recv, const Blocks& blocks,
                                                      std::size_t unit, std::uint32_t index) {
  if (node_) return node_->scatter(from, recv, blocks, unit, index);
  copy_bytes(recv, from + blocks.offset(0) * unit, blocks.count(0) * unit);
  return {};
}

/// With every rank on another node, its block.
std::vector<Message> HierarchicalCollectives::blocks_of_others(const std::byte* buffer, const Blocks& blocks,
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

/// With the first rank of every other node, the equal blocks of all its ranks: in the buffer where they are joined
/// there, else on the stage, from or to which they are still to be copied.
std::vector<Message> HierarchicalCollectives::bundles_of_others(const std::byte* buffer, const Blocks& blocks,
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

// ---- allgather ----
Result<void> HierarchicalCollectives::allgather(const std::byte* send, std::byte* recv, const Blocks& blocks,
                                                std::size_t unit) {
  std::size_t all = 0;
  for (std::size_t r = 0; r < ranks(); ++r) all += blocks.count(r);
  return all * unit <= gathered_by_leaders_up_to ? allgather_by_leaders(send, recv, blocks, unit)
                                                 : allgather_by_rails(send, recv, blocks, unit);
}

/// To the node's first rank, between those, and to all again: node by node, where the buffer has another order in
/// memory of our own.
Result<void> HierarchicalCollectives::allgather_by_leaders(const std::byte* send, std::byte* recv, const Blocks& blocks,
                                                           std::size_t unit) {
  BlockList of_nodes;
  BlockList own;
  bool is_in_order = true;
  for (std::size_t n = 0; n < topology_.nodes.size(); ++n) {
    const auto& theirs = topology_.nodes[n];
    const std::size_t begin = of_nodes.sum();
    is_in_order =
        is_in_order && blocks.offset(static_cast<std::size_t>(theirs.front())) == begin && are_joined(theirs, blocks);
    std::size_t end = begin;
    for (const int rank : theirs) {
      const std::size_t count = blocks.count(static_cast<std::size_t>(rank));
      if (n == topology_.own_node) own.add(count, end);
      end += count;
    }
    of_nodes.append(end - begin);
  }
  const std::size_t bytes = of_nodes.sum() * unit;
  std::byte* const all = is_in_order ? recv : stage(bytes);
  if (auto done = gather_in_node(send, all, own.view(), unit, 0); !done) return done;
  if (leaders_) {
    const std::byte* const bundle = all + of_nodes.view().offset(topology_.own_node) * unit;
    if (auto done = leaders_->allgather(bundle, all, of_nodes.view(), unit); !done) return done;
  }
  if (node_) {
    if (auto done = node_->broadcast(all, bytes, 0); !done) return done;
  }
  for (std::size_t n = 0; !is_in_order && n < topology_.nodes.size(); ++n) {
    unpack(topology_.nodes[n], all + of_nodes.view().offset(n) * unit, recv, blocks, unit);
  }
  return {};
}

/// Every rank gets the blocks of its peers on the other nodes, then the node's ranks share what they have.
Result<void> HierarchicalCollectives::allgather_by_rails(const std::byte* send, std::byte* recv, const Blocks& blocks,
                                                         std::size_t unit) {
  if (auto done = exchange_over_rails(send, recv, blocks, unit); !done) return done;
  const auto& here = topology_.own_ranks();
  copy_bytes(recv + blocks.offset(static_cast<std::size_t>(here[topology_.own_index])) * unit, send,
             blocks.count(static_cast<std::size_t>(here[topology_.own_index])) * unit);
  if (!node_) return {};
  for (const auto& theirs : topology_.nodes) {
    for (std::size_t first = 0; first < theirs.size(); first += here.size()) {
      BlockList shared;
      for (std::size_t j = first; j < first + here.size(); ++j) {
        const bool is_there = j < theirs.size();
        const auto rank = static_cast<std::size_t>(theirs[is_there ? j : first]);
        shared.add(is_there ? blocks.count(rank) : 0, blocks.offset(rank));
      }
      const std::byte* const mine = recv + shared.view().offset(topology_.own_index) * unit;
      if (auto done = node_->allgather(mine, recv, shared.view(), unit); !done) return done;
    }
  }
  return {};
}

/// Where nodes are even, peers are the ranks with the same index. Else a rank's block goes, on each node, to the rank
/// with its index modulo that node's size.
Result<void> HierarchicalCollectives::exchange_over_rails(const std::byte* send, std::byte* recv, const Blocks& blocks,
                                                          std::size_t unit) {
  const std::size_t index = topology_.own_index;
  if (is_even()) {
    BlockList of_rail;
    for (const auto& theirs : topology_.nodes) {
      const auto rank = static_cast<std::size_t>(theirs[index]);
      of_rail.add(blocks.count(rank), blocks.offset(rank));
    }
    return rail_->allgather(send, recv, of_rail.view(), unit);
  }
  const auto& here = topology_.own_ranks();
  std::vector<Message> sends;
  std::vector<Message> receives;
  for (std::size_t n = 0; n < topology_.nodes.size(); ++n) {
    if (n == topology_.own_node) continue;
    const auto& theirs = topology_.nodes[n];
    const std::size_t own_bytes = blocks.count(static_cast<std::size_t>(here[index])) * unit;
    sends.push_back(message(theirs[index % theirs.size()], send, own_bytes));
    for (std::size_t j = index; j < theirs.size(); j += here.size()) {
      const auto rank = static_cast<std::size_t>(theirs[j]);
      receives.push_back(message(theirs[j], recv + blocks.offset(rank) * unit, blocks.count(rank) * unit));
    }
  }
  return transport_.exchange(sends, receives, *watchdog_);
}

// ---- gather and scatter ----
Result<void> HierarchicalCollectives::gather(const std::byte* send, std::byte* recv, const Blocks& blocks,
                                             std::size_t unit, int root) {
  if (blocks.count(0) * unit <= bundled_up_to) return gather_bundles(send, recv, blocks, unit, root);
  const std::size_t home = topology_.node_of(root);
  if (topology_.own_node != home) {
    const Message sent = message(root, send, blocks.count(0) * unit);
    return transport_.exchange({&sent, 1}, {}, *watchdog_);
  }
  const BlockList own = blocks_of_node(home, blocks);
  const std::uint32_t index = index_of(topology_.own_ranks(), root);
  if (auto done = gather_in_node(send, recv, own.view(), unit, index); !done || !is(root)) return done;
  return transport_.exchange({}, blocks_of_others(recv, blocks, unit), *watchdog_);
}

/// One message from each node, straight to its place where that is in one piece.
Result<void> HierarchicalCollectives::gather_bundles(const std::byte* send, std::byte* recv, const Blocks& blocks,
                                                     std::size_t unit, int root) {
  const std::size_t block = blocks.count(0) * unit;
  const std::size_t home = topology_.node_of(root);
  const auto& here = topology_.own_ranks();
  const int agent = agent_of(topology_.own_node, root);
  if (topology_.own_node != home) {
    std::byte* const bundle = stage(here.size() * block);
    auto done = gather_in_node(send, bundle, Blocks(blocks.count(0)), unit, index_of(here, agent));
    if (!done || !is(agent)) return done;
    const Message sent = message(root, bundle, here.size() * block);
    return transport_.exchange({&sent, 1}, {}, *watchdog_);
  }
  const BlockList own = blocks_of_node(home, blocks);
  if (auto done = gather_in_node(send, recv, own.view(), unit, index_of(here, root)); !done || !is(root)) return done;
  const auto receives = bundles_of_others(recv, blocks, unit);
  if (auto done = transport_.exchange({}, receives, *watchdog_); !done) return done;
  for (const Message& bundle : receives) {
    const auto& theirs = topology_.nodes[topology_.node_of(bundle.peer)];
    if (!are_joined(theirs, blocks)) unpack(theirs, bundle.data, recv, blocks, unit);
  }
  return {};
}

Result<void> HierarchicalCollectives::scatter(const std::byte* send, std::byte* recv, const Blocks& blocks,
                                              std::size_t unit, int root) {
  if (blocks.count(0) * unit <= bundled_up_to) return scatter_bundles(send, recv, blocks, unit, root);
  const std::size_t home = topology_.node_of(root);
  if (topology_.own_node != home) {
    const Message received = message(root, recv, blocks.count(0) * unit);
    return transport_.exchange({}, {&received, 1}, *watchdog_);
  }
  if (is(root)) {
    if (auto done = transport_.exchange(blocks_of_others(send, blocks, unit), {}, *watchdog_); !done) return done;
  }
  const BlockList own = blocks_of_node(home, blocks);
  return scatter_in_node(send, recv, own.view(), unit, index_of(topology_.own_ranks(), root));
}

Result<void> HierarchicalCollectives::scatter_bundles(const std::byte* send, std::byte* recv, const Blocks& blocks,
                                                      std::size_t unit, int root) {
  const std::size_t block = blocks.count(0) * unit;
  const std::size_t home = topology_.node_of(root);
  const auto& here = topology_.own_ranks();
  const int agent = agent_of(topology_.own_node, root);
  if (topology_.own_node != home) {
    std::byte* const bundle = stage(here.size() * block);
    if (is(agent)) {
      const Message received = message(root, bundle, here.size() * block);
      if (auto done = transport_.exchange({}, {&received, 1}, *watchdog_); !done) return done;
    }
    return scatter_in_node(bundle, recv, Blocks(blocks.count(0)), unit, index_of(here, agent));
  }
  if (is(root)) {
    const auto sends = bundles_of_others(send, blocks, unit);
    for (const Message& bundle : sends) {
      const auto& theirs = topology_.nodes[topology_.node_of(bundle.peer)];
      if (!are_joined(theirs, blocks)) pack(theirs, send, blocks, unit, bundle.data);
    }
    if (auto done = transport_.exchange(sends, {}, *watchdog_); !done) return done;
  }
  const BlockList own = blocks_of_node(home, blocks);
  return scatter_in_node(send, recv, own.view(), unit, index_of(here, root));
}

// ---- alltoall ----
/// In place and long, from rank to rank: one pair at a time.
Result<void> HierarchicalCollectives::alltoall(const std::byte* send, const Blocks& send_blocks, std::byte* recv,
                                               const Blocks& recv_blocks, std::size_t unit) {
  const std::size_t block = send_blocks.are_equal() ? send_blocks.count(0) * unit : SIZE_MAX;
  if (block <= exchanged_by_leaders_up_to && block * ranks() * topology_.most_on_a_node() <= largest_bundle) {
    return alltoall_by_leaders(send, recv, block);
  }
  if (send == recv) return all_.alltoall(send, send_blocks, recv, recv_blocks, unit);
  const BlockList out = blocks_of_node(topology_.own_node, send_blocks);
  const BlockList in = blocks_of_node(topology_.own_node, recv_blocks);
  if (node_) {
    if (auto done = node_->alltoall(send, out.view(), recv, in.view(), unit); !done) return done;
  } else {
    copy_bytes(recv + in.view().offset(0) * unit, send + out.view().offset(0) * unit, in.sum() * unit);
  }
  const auto own = static_cast<std::size_t>(topology_.own_ranks()[topology_.own_index]);
  std::vector<Message> sends;
  std::vector<Message> receives;
  for (std::size_t k = 1; k < ranks(); ++k) {
    const std::size_t to = (own + k) % ranks();
    const std::size_t from = (own + ranks() - k) % ranks();
    if (topology_.node_of(static_cast<int>(to)) != topology_.own_node) {
      const std::byte* const data = send + send_blocks.offset(to) * unit;
      sends.push_back(message(static_cast<int>(to), data, send_blocks.count(to) * unit));
    }
    if (topology_.node_of(static_cast<int>(from)) != topology_.own_node) {
      std::byte* const data = recv + recv_blocks.offset(from) * unit;
      receives.push_back(message(static_cast<int>(from), data, recv_blocks.count(from) * unit));
    }
  }
  return transport_.exchange(sends, receives, *watchdog_);
}

/// All blocks of a node's ranks to its first, which exchanges them with the others of its kind, and deals out what
/// came.
Result<void> HierarchicalCollectives::alltoall_by_leaders(const std::byte* send, std::byte* recv, std::size_t block) {
  const std::size_t of_rank = ranks() * block;
  const std::size_t of_node = topology_.own_ranks().size() * of_rank;
  std::byte* const collected = stage(leaders_ ? 3 * of_node : 0);
  std::byte* const out = collected + of_node;
  if (auto done = gather_in_node(send, collected, Blocks(of_rank), 1, 0); !done) return done;
  if (leaders_) {
    if (auto done = exchange_bundles(collected, out, out + of_node, block); !done) return done;
  }
  return scatter_in_node(out, recv, Blocks(of_rank), 1, 0);
}

/// From `collected` (by own rank, then by the rank that it is for) to `out` (by own rank, then by the rank that it is
/// from). A bundle has, for each rank that it is from, the blocks of those that it is for. `in` is memory for them.
Result<void> HierarchicalCollectives::exchange_bundles(const std::byte* collected, std::byte* out, std::byte* in,
                                                       std::size_t block) {
  const auto& here = topology_.own_ranks();
  const std::size_t of_rank = ranks() * block;
  const auto at = [&](std::size_t own, int other) { return own * of_rank + static_cast<std::size_t>(other) * block; };
  std::vector<Message> sends;
  std::vector<Message> receives;
  std::size_t begin = 0;
  for (const auto& theirs : topology_.nodes) {
    const std::size_t bytes = here.size() * theirs.size() * block;
    const bool is_own = theirs.front() == here.front();  // what these have for each other is a bundle, too
    std::byte* bundle = (is_own ? in : out) + begin;
    if (!is_own) {
      sends.push_back(message(theirs.front(), bundle, bytes));
      receives.push_back(message(theirs.front(), in + begin, bytes));
    }
    for (std::size_t i = 0; i < here.size(); ++i) {
      for (const int rank : theirs) copy_bytes(std::exchange(bundle, bundle + block), collected + at(i, rank), block);
    }
    begin += bytes;
  }
  if (auto done = transport_.exchange(sends, receives, *watchdog_); !done) return done;
  const std::byte* bundle = in;
  for (const auto& theirs : topology_.nodes) {
    for (const int rank : theirs) {
      for (std::size_t i = 0; i < here.size(); ++i) {
        copy_bytes(out + at(i, rank), std::exchange(bundle, bundle + block), block);
      }
    }
  }
  return {};
}

}  // namespace amldist::collective
