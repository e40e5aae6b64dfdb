// All-to-all: every rank publishes its blocks in its slot, each rank copies those for it; pipelined in pieces. Short
// equal blocks take a round without a slot.
#include <algorithm>
#include <cstring>

#include "collective/node/node_pipeline.hpp"
#include "collective/node/single_copy_trial.hpp"

namespace amldist::collective {

/// The longest message, in elements. Equal blocks are equal on all ranks: the signature covers them. For explicit
/// blocks only the two ranks of a pair know how much they exchange: a first round agrees on the longest, and each rank
/// checks that it gets what it expects.
Result<std::uint64_t> NodeCollectives::agree_on_longest(const calls::Blocks& send_blocks,
                                                        const calls::Blocks& recv_blocks) {
  if (send_blocks.are_equal() && recv_blocks.are_equal()) return send_blocks.count(0);
  const std::uint32_t own = slot_channel_.rank();
  const std::uint32_t ranks = slot_channel_.size();
  constexpr std::uint64_t most = SIZE_MAX / 2 / sizeof(std::uint64_t);  // elements that any memory can have
  std::uint64_t longest = longest_of(send_blocks, ranks);
  slot_channel_.use_slots(slot_channel_.slot_bytes(), SIZE_MAX);
  if (auto status = slot_channel_.begin(); !status) return status.error();
  std::memcpy(slot_channel_.own_line(), &longest, sizeof longest);
  for (std::uint32_t r = 0; send_blocks.are_listed() && r < ranks; ++r) {
    const std::uint64_t given = send_blocks.count(r);
    std::memcpy(slot_channel_.own_slot() + r * sizeof given, &given, sizeof given);
  }
  slot_channel_.publish();
  if (auto status = slot_channel_.await_all(); !status) return status.error();
  for (std::uint32_t r = 0; r < ranks; ++r) {
    std::uint64_t theirs = 0;
    std::memcpy(&theirs, slot_channel_.line_of(r), sizeof theirs);
    if (theirs > most) return slot_channel_.is_damaged(r);
    longest = std::max(longest, theirs);
    if (!recv_blocks.are_listed()) continue;
    std::memcpy(&theirs, slot_channel_.slot_of(r) + own * sizeof theirs, sizeof theirs);
    if (theirs != recv_blocks.count(r)) return slot_channel_.differs(r);
  }
  return longest;
}

/// For a first round with addresses.
bool NodeCollectives::is_anyone_in_place() {
  for (std::uint32_t r = 0; r < slot_channel_.size(); ++r) {
    const Offer theirs = offer_of(r, 0);
    if (theirs.send == theirs.recv) return true;
  }
  return false;
}

/// In a single copy, for equal blocks, once all have shown their buffers: every rank fetches its block from each of the
/// others.
Result<void> NodeCollectives::alltoall_fetched(const std::byte* send, std::byte* recv, std::size_t bytes) {
  const std::uint32_t own = slot_channel_.rank();
  const std::uint32_t ranks = slot_channel_.size();
  copy(recv + own * bytes, send + own * bytes, bytes, store_for(bytes * ranks));
  for (std::uint32_t k = 1; k < ranks; ++k) {
    const std::uint32_t r = (own + k) % ranks;
    if (auto status = fetch(r, recv + r * bytes, offer_of(r, 0).send + own * bytes, bytes); !status) return status;
  }
  return finish_reading();
}

Result<void> NodeCollectives::alltoall_short(const std::byte* send, std::byte* recv, std::size_t bytes) {
  const std::uint32_t own = slot_channel_.rank();
  const std::uint32_t ranks = slot_channel_.size();
  const std::size_t all = bytes * (ranks - 1);
  if (auto status = slot_channel_.begin_short(); !status) return status;
  publish_short(all, [&](std::byte* place) {
    for (std::uint32_t r = 0; r < ranks; ++r) {
      if (r != own) copy_for_others(place + part_for(r, own) * bytes, send + r * bytes, bytes);
    }
  });
  copy(recv + own * bytes, send + own * bytes, bytes);
  if (auto status = slot_channel_.await_all_places(all); !status) return status;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    if (r != own) copy(recv + r * bytes, slot_channel_.place_of(r, all) + part_for(own, r) * bytes, bytes);
  }
  return {};
}

Result<void> NodeCollectives::alltoall(const std::byte* send, const calls::Blocks& send_blocks, std::byte* recv,
                                       const calls::Blocks& recv_blocks, std::size_t unit) {
  const auto staged = [&] { return alltoall_staged(send, send_blocks, recv, recv_blocks, unit); };
  if (!send_blocks.are_equal() || !recv_blocks.are_equal()) return staged();
  const std::size_t bytes = send_blocks.count(0) * unit;
  if (is_short_for_each(bytes)) return alltoall_short(send, recv, bytes);
  if (auto status = tune_staging(bytes * slot_channel_.size()); !status) return status;
  return run_faster_variant(tuning::SingleCopy::alltoall, bytes * slot_channel_.size(),
                            [&](bool fetches) -> Result<void> {
                              if (!fetches) return staged();
                              if (auto status = show(send, recv); !status) return status;
                              if (auto status = slot_channel_.await_all(); !status) return status;
                              // A rank that works in place would overwrite what others have yet to fetch.
                              return is_anyone_in_place() ? staged() : alltoall_fetched(send, recv, bytes);
                            });
}

Result<void> NodeCollectives::alltoall_staged(const std::byte* send, const calls::Blocks& send_blocks, std::byte* recv,
                                              const calls::Blocks& recv_blocks, std::size_t unit) {
  const std::uint32_t own = slot_channel_.rank();
  const std::uint32_t ranks = slot_channel_.size();
  const auto longest = agree_on_longest(send_blocks, recv_blocks);
  if (!longest) return longest.error();
  const std::size_t piece = use_slots_by_rank(*longest * unit, 2 * *longest * unit * ranks);
  const Store store = send == recv ? Store::cached : store_for(*longest * unit * ranks);
  return pipeline(
      pieces_of(*longest * unit, piece),
      [&](std::size_t i) {
        for (std::uint32_t r = 0; r < ranks; ++r) {
          const std::size_t part = part_of(send_blocks.count(r) * unit, i, piece);
          if (r == own || part == 0) continue;
          copy_for_others(slot_channel_.own_slot() + part_for(r, own) * piece,
                          block_of(send, send_blocks, r, unit) + i * piece, part);
        }
      },
      [&](std::size_t i, std::uint32_t back) -> Result<void> {
        copy_piece(block_of(recv, recv_blocks, own, unit), block_of(send, send_blocks, own, unit),
                   send_blocks.count(own) * unit, i, piece, store);
        for (std::uint32_t k = 1; k < ranks; ++k) {
          const std::uint32_t r = (own + k) % ranks;
          if (auto status = slot_channel_.await(r, back); !status) return status;
          const std::size_t part = part_of(recv_blocks.count(r) * unit, i, piece);
          if (part == 0) continue;
          copy(block_of(recv, recv_blocks, r, unit) + i * piece,
               slot_channel_.slot_of(r, back) + part_for(own, r) * piece, part, store);
        }
        return {};
      });
}

}  // namespace amldist::collective
