// Which algorithm a collective uses: the sizes and numbers of ranks at which the choice changes. Defined elsewhere: the
// limits of data structures (SlotChannel::short_data, MessageRing::capacity_of(), Transport::part_bytes()), how a rank
// waits, and the fuse_bytes of gradient buckets.
//
// Pure functions of sizes. Ranks must choose alike without a message, so only values that all ranks know may be used:
// bytes, ranks, and their distribution over nodes.
//
// Between nodes, one step costs as much as `bytes_of_a_step` additional bytes. So short messages use few steps with all
// of the data, and long ones use more steps with slices. tests/bench/between_nodes measures these thresholds,
// tests/bench/allreduce/run those inside a node. ../algorithms/README.md has the table with the reasons.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace amldist::collective::tuning {

inline constexpr std::size_t kib = 1UL << 10;
inline constexpr std::size_t mib = 1UL << 20;

// ---- inside a node: shared memory ----

/// Shorter messages take one round; from this size on it pays to check for buffers from amldist_alloc(), too.
inline constexpr std::size_t one_round_below = 8 * kib;

/// Staging buffers: bytes of a slot, and the most that a rank reads at a time from one slot where data goes both ways
/// (a slot, if oversubscribed). More would leave the second-level cache before it is read.
inline constexpr std::size_t node_slot = 512 * kib;
inline constexpr std::size_t node_piece = 128 * kib;
/// Bytes of a piece if data goes one way only, in broadcasts, reduces, gathers and scatters: the receiver copies one
/// piece while the sender stages the next. Eight pieces, if these are long enough to be worth a wait. If ranks share
/// processors, each wait is a turn of all of them, so a piece fills a slot.
inline constexpr std::size_t shortest_one_way_piece = 16 * kib;
[[nodiscard]] constexpr std::size_t one_way_piece(std::size_t bytes, bool oversubscribed) noexcept {
  if (oversubscribed) return node_slot;
  return std::clamp(std::bit_floor(bytes / 8), shortest_one_way_piece, node_piece);
}
/// Bytes in which the contributions of all ranks take turns, and the largest and smallest size of a slot: staging
/// memory is used again once it has left the caches. See SlotChannel::use_slots(). Calls with longer buffers, and ranks
/// that share processors or trade their slots, take turns in the smallest.
inline constexpr std::size_t most_rotation = 8 * mib;
inline constexpr std::size_t longest_rotation = mib;
inline constexpr std::size_t shortest_rotation = 128 * kib;
inline constexpr std::size_t most_rotating_buffers = mib;
/// Largest slice of a piece with three ranks or more: the slices of all ranks stay in the cache together.
inline constexpr std::size_t node_slice = 32 * kib;
/// Zero-copy: the part that a rank folds before it copies the result to the others stays in the cache until then.
inline constexpr std::size_t zero_copy_step = 64 * kib;

/// Collectives whose data the kernel can copy once, from one process to the other (process_vm_readv).
enum class SingleCopy : std::uint8_t { allreduce, reduce_scatter, allgather, scatter, alltoall, broadcast };
inline constexpr std::size_t single_copy_collectives = 6;
/// Bytes of a rank's larger buffer from which that may be faster than staging: then the first calls try both. A
/// broadcast to several is not: the kernel lets readers of a page in one after the other. More than four ranks that all
/// read from each other at once delay each other likewise. Nor is a gather, in which the root does all the copying
/// either way.
[[nodiscard]] constexpr std::size_t single_copy_from(SingleCopy what, std::size_t ranks) noexcept {
  constexpr std::size_t never = SIZE_MAX;
  const auto by_ranks = [ranks](std::size_t two, std::size_t four, std::size_t more) {
    return ranks <= 2 ? two : ranks <= 4 ? four : more;
  };
  switch (what) {
    case SingleCopy::allreduce:
      return by_ranks(4 * mib, 4 * mib, never);
    case SingleCopy::reduce_scatter:
      return by_ranks(4 * mib, 16 * mib, never);
    case SingleCopy::allgather:
      return by_ranks(256 * kib, mib, never);
    case SingleCopy::scatter:
      return by_ranks(512 * kib, 4 * mib, 4 * mib);
    case SingleCopy::broadcast:
      return by_ranks(2 * mib, never, never);
    case SingleCopy::alltoall:
      break;
  }
  return 256 * kib;
}
/// Which of the two is faster differs with the size: each of these classes has a trial of its own: below 1 MiB, below
/// 4, below 16, and the others.
inline constexpr std::size_t single_copy_classes = 4;
[[nodiscard]] constexpr std::size_t single_copy_class(std::size_t bytes) noexcept {
  return std::min(single_copy_classes - 1, (static_cast<std::size_t>(std::bit_width(bytes / mib)) + 1) / 2);
}
/// This many first calls of a communicator with long buffers, of any collective, are staged: meanwhile staging memory
/// comes page by page from the kernel, and such a call takes longer than it ever will again.
inline constexpr std::uint64_t single_copy_untried = 16;
/// This many of a collective's next calls in a class are made in both ways in turn, and timed.
inline constexpr std::uint64_t single_copy_tried = 6;
inline constexpr std::uint64_t single_copy_trial_every = 512;
/// With more ranks than this, the parts of all of them would not fit into a slot by whole pages.
inline constexpr std::size_t most_ranks_single_copy = 128;
/// The beginning of a slot, for offsets of blocks; fetched data follows it.
inline constexpr std::size_t single_copy_offsets = 4 * kib;
/// The bytes that a rank fetches from each other rank before it folds them: all of it fits into a slot, and stays in
/// the cache.
[[nodiscard]] constexpr std::size_t single_copy_step(std::size_t ranks) noexcept {
  constexpr std::size_t page = 4 * kib;
  constexpr std::size_t cache = 256 * kib;
  return std::max(page, cache / (ranks - 1) / page * page);
}
static_assert(single_copy_step(most_ranks_single_copy) * (most_ranks_single_copy - 1) <=
              node_slot - single_copy_offsets);
static_assert(most_ranks_single_copy * sizeof(std::uint64_t) <= single_copy_offsets);

/// Messages of a node up to this length, header included, are in the ring, are written and read as a whole, and can be
/// received at the first look.
inline constexpr std::size_t longest_short_message = 4 * kib + 64;

/// Messages of this many bytes may be written to the blocks by streaming stores, or fetched from the other process if
/// the kernel allows that. Which way is fastest is tried for each of these classes: of sizes, and of messages that go
/// both ways at once.
inline constexpr std::size_t message_tried_from = 8 * kib;
static_assert(longest_short_message < message_tried_from);
/// Shorter ones that go both ways are not fetched: what a rank does between two of them takes as long as a copy, and is
/// in no measured time.
inline constexpr std::size_t both_ways_fetched_from = 24 * kib;
inline constexpr std::size_t message_classes = 8;
[[nodiscard]] constexpr std::size_t message_class(std::size_t bytes, bool goes_both_ways) noexcept {
  const std::size_t of_size = bytes < 64 * kib ? 0 : bytes < 512 * kib ? 1 : bytes < 4 * mib ? 2 : 3;
  return of_size + (goes_both_ways ? message_classes / 2 : 0);
}
/// Ranks that share processors try nothing, but fetch messages from this length on: so the sender's processor is free
/// for other ranks. Shorter ones stay in a cache while they are copied. `follows`: one way, behind another message to
/// the same rank; if those are copied, a rank's turn on a processor moves no more than the blocks hold.
[[nodiscard]] constexpr std::size_t fetched_untried_from(bool follows) noexcept { return follows ? 256 * kib : mib; }
/// This many of the first messages of a class are sent in each way, in turn.
inline constexpr std::uint64_t messages_tried = 3;
inline constexpr std::uint64_t message_trial_every = 1024;

/// From this many bytes on the way of staging matters; a trial of the ways reduces as many.
inline constexpr std::size_t staging_trial_from = 16 * kib;
inline constexpr std::size_t staging_trial_bytes = 64 * kib;
/// A trial takes 0.2 to 0.6 ms, about a hundredth of this many calls.
inline constexpr std::uint64_t staging_trial_every = 16384;

/// For staged reductions: whether every rank folds all data, with one wait less, or its slice of it. `slices`: a trial
/// found slices to be faster for two ranks (an EPYC of the third generation; on one of the fifth they are not).
[[nodiscard]] constexpr bool is_whole_faster(std::size_t bytes, std::size_t ranks, bool slices) noexcept {
  if (ranks > 2) return bytes <= one_round_below;
  return slices ? bytes < staging_trial_from : bytes <= node_piece;
}

// ---- between nodes: ranks that only exchange messages ----

/// Cost of one step of an exchange, as bytes of payload.
inline constexpr std::size_t bytes_of_a_step = 8 * kib;
/// Direct exchange: limits for the bytes that a rank sends to all others together, and for the number of ranks. If that
/// number is not a power of two, the other algorithms need several additional steps.
inline constexpr std::size_t direct_up_to = 32 * kib;
inline constexpr std::size_t most_ranks_direct = 8;
/// Longest segment of a pipelined collective (ring, binomial tree). It limits a rank's scratch memory.
inline constexpr std::size_t longest_segment = mib;
/// Segment size of Rabenseifner's algorithm: larger segments do not stay in the cache from one step to the next.
inline constexpr std::size_t rabenseifner_segment = 512 * kib;
/// Messages up to this size are cut into packets, so that the first is combined while the others arrive. Longer
/// messages gain nothing.
inline constexpr std::size_t cut_into_packets_up_to = 2 * mib;
/// All-gather by recursive doubling: bytes of all blocks.
inline constexpr std::size_t allgather_doubling_up_to = 128 * kib;

enum class PeerAllreduce : std::uint8_t { direct, recursive_doubling, rabenseifner, ring };

/// Whether few steps with all of the data are faster than more steps with slices of it.
[[nodiscard]] constexpr bool is_doubling_faster(std::size_t bytes, std::size_t ranks) noexcept {
  const bool is_power = std::has_single_bit(ranks);
  const std::size_t steps = static_cast<std::size_t>(std::bit_width(ranks)) - 1 + (is_power ? 0 : 2);
  const std::size_t sliced_steps = is_power ? 2 * steps : 2 * (ranks - 1);
  const std::size_t sliced_bytes = 2 * bytes / ranks * (ranks - 1);
  return bytes <= longest_segment && steps * (bytes_of_a_step + bytes) <= sliced_steps * bytes_of_a_step + sliced_bytes;
}

/// `bytes`: of the whole buffer. `ranks`: two or more.
[[nodiscard]] constexpr PeerAllreduce choose_peer_allreduce(std::size_t bytes, std::size_t ranks) noexcept {
  const bool is_power = std::has_single_bit(ranks);
  if (!is_power && ranks <= most_ranks_direct && bytes * (ranks - 1) <= direct_up_to) return PeerAllreduce::direct;
  if (is_doubling_faster(bytes, ranks)) return PeerAllreduce::recursive_doubling;
  return is_power ? PeerAllreduce::rabenseifner : PeerAllreduce::ring;
}

/// Scatter of equal blocks: whether a binomial tree, with few messages at the root, is faster than a message for each
/// rank. With fewer ranks the additional steps cost more than the root saves, and longer blocks are copied on the way.
/// A gather gains nothing: a rank receives faster than it sends.
inline constexpr std::size_t fewest_ranks_scatter_tree = 16;
inline constexpr std::size_t scatter_tree_up_to = 4 * kib;
[[nodiscard]] constexpr bool is_scatter_tree_faster(std::size_t block, std::size_t ranks) noexcept {
  return ranks >= fewest_ranks_scatter_tree && block <= scatter_tree_up_to;
}

enum class PeerAllgather : std::uint8_t { recursive_doubling, ring };

/// `bytes`: of all blocks. `is_contiguous`: the blocks are adjacent and in rank order.
[[nodiscard]] constexpr PeerAllgather choose_peer_allgather(std::size_t bytes, std::size_t ranks,
                                                            bool is_contiguous) noexcept {
  const bool doubles = is_contiguous && std::has_single_bit(ranks) && bytes <= allgather_doubling_up_to;
  return doubles ? PeerAllgather::recursive_doubling : PeerAllgather::ring;
}

// ---- several ranks on several nodes ----

/// leaders: through one rank of each node. rails: every rank handles its share of the data.
enum class Hierarchy : std::uint8_t { leaders, rails };

/// Up to this many bytes, one message of each leader is faster than slices of all ranks.
inline constexpr std::size_t allreduce_leaders_up_to = 4 * kib;
/// The same for a reduce-scatter, which is then an all-reduce: bytes of all blocks.
inline constexpr std::size_t reduce_scatter_leaders_up_to = 32 * kib;
/// The same for an all-gather: bytes of all blocks.
inline constexpr std::size_t allgather_leaders_up_to = 64 * kib;
/// Gather and scatter: bytes of a block up to which a node's blocks travel in one message.
inline constexpr std::size_t node_bundle_up_to = 4 * kib;
/// All-to-all: bytes of a block up to which the leaders exchange them, and the most for all blocks of a node's ranks.
inline constexpr std::size_t alltoall_leaders_up_to = 4 * kib;
inline constexpr std::size_t largest_alltoall_bundle = mib;

/// `fewest_on_a_node`: ranks of the smallest node. With one rank there is nothing to divide among rails.
[[nodiscard]] constexpr Hierarchy choose_allreduce(std::size_t bytes, std::size_t fewest_on_a_node) noexcept {
  return bytes <= allreduce_leaders_up_to || fewest_on_a_node == 1 ? Hierarchy::leaders : Hierarchy::rails;
}
[[nodiscard]] constexpr Hierarchy choose_reduce_scatter(std::size_t bytes_of_all) noexcept {
  return bytes_of_all <= reduce_scatter_leaders_up_to ? Hierarchy::leaders : Hierarchy::rails;
}
[[nodiscard]] constexpr Hierarchy choose_allgather(std::size_t bytes_of_all) noexcept {
  return bytes_of_all <= allgather_leaders_up_to ? Hierarchy::leaders : Hierarchy::rails;
}
/// `block`: bytes from one rank to another, equal for all; SIZE_MAX if they differ. rails: straight from rank to rank.
[[nodiscard]] constexpr Hierarchy choose_alltoall(std::size_t block, std::size_t ranks,
                                                  std::size_t most_on_a_node) noexcept {
  const bool fits = block <= alltoall_leaders_up_to && block * ranks * most_on_a_node <= largest_alltoall_bundle;
  return fits ? Hierarchy::leaders : Hierarchy::rails;
}

}  // namespace amldist::collective::tuning
