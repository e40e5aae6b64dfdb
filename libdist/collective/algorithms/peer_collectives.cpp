#include "collective/algorithms/peer_collectives.hpp"

#include <algorithm>
#include <bit>

#include "collective/kernels/copy_bytes.hpp"

namespace amldist::collective {
namespace {

// Pieces of what goes along a tree, and so the scratch memory.
constexpr std::size_t longest_piece = 1UL << 20;
constexpr std::size_t longest_in_parts = 2UL << 20;
// Bytes of all blocks (measured by tests/bench/between_nodes).
constexpr std::size_t gathered_by_doubling_up_to = 131072;

}  // namespace

Message PeerCollectives::message(std::size_t peer, const std::byte* data, std::size_t bytes) const {
  return {group_.ranks[peer], const_cast<std::byte*>(data), bytes, signature_, false};  // NOLINT: a send only reads
}

Result<void> PeerCollectives::swap(std::size_t to, const std::byte* out, std::size_t out_bytes, std::size_t from,
                                   std::byte* in, std::size_t in_bytes) {
  sends_.clear();
  receives_.clear();
  add_parts(sends_, to, out, out_bytes);
  add_parts(receives_, from, in, in_bytes);
  return transport_.exchange(sends_, receives_, *watchdog_);
}

/// What is much longer gains nothing by it.
void PeerCollectives::add_parts(std::vector<Message>& list, std::size_t peer, const std::byte* data, std::size_t bytes,
                                bool has_room) const {
  const std::size_t part = bytes <= longest_in_parts ? transport_.part_bytes() : bytes;
  std::size_t at = 0;
  do {
    list.push_back(message(peer, data + at, std::min(part, bytes - at)));
    list.back().has_room = has_room && at == 0;
    at += part;
  } while (at < bytes);
}

Result<void> PeerCollectives::send(std::size_t to, const std::byte* data, std::size_t bytes) {
  const Message sent = message(to, data, bytes);
  return transport_.exchange({&sent, 1}, {}, *watchdog_);
}

Result<void> PeerCollectives::receive(std::size_t from, std::byte* data, std::size_t bytes) {
  const Message received = message(from, data, bytes);
  return transport_.exchange({}, {&received, 1}, *watchdog_);
}

std::byte* PeerCollectives::scratch(std::size_t bytes) {
  if (scratch_.size() < Transport::room + bytes) scratch_.resize(Transport::room + bytes);
  return scratch_.data() + Transport::room;
}

Result<void> PeerCollectives::barrier() {
  const std::size_t size = group_.size();
  for (std::size_t distance = 1; distance < size; distance *= 2) {
    const std::size_t to = (group_.own + distance) % size;
    const std::size_t from = (group_.own + size - distance) % size;
    if (auto done = swap(to, nullptr, 0, from, nullptr, 0); !done) return done;
  }
  return {};
}

Result<void> PeerCollectives::broadcast(std::byte* buffer, std::size_t bytes, std::size_t root) {
  const std::size_t size = group_.size();
  const std::size_t own = (group_.own + size - root) % size;
  std::size_t reach = 1;  // ranks that have the data when this one gets it
  while (reach <= own) reach *= 2;
  for (std::size_t at = 0; at < std::max<std::size_t>(bytes, 1); at += longest_piece) {
    const std::size_t part = std::min(longest_piece, bytes - at);
    if (own != 0) {
      if (auto got = receive((own - reach / 2 + root) % size, buffer + at, part); !got) return got;
    }
    std::vector<Message> sends;
    std::size_t farthest = own == 0 ? 1 : reach;
    while (own + farthest < size) {
      sends.push_back(message((own + farthest + root) % size, buffer + at, part));
      farthest *= 2;
    }
    if (auto sent = transport_.exchange(sends, {}, *watchdog_); !sent) return sent;
  }
  return {};
}

Result<void> PeerCollectives::allgather(const std::byte* send_buffer, std::byte* recv, const Blocks& blocks,
                                        std::size_t unit) {
  copy_bytes(recv + blocks.offset(group_.own) * unit, send_buffer, blocks.count(group_.own) * unit);
  std::size_t all = 0;
  bool is_joined = true;  // one block behind the other
  for (std::size_t r = 0; r < group_.size(); ++r) {
    is_joined = is_joined && blocks.offset(r) == blocks.offset(0) + all;
    all += blocks.count(r);
  }
  const bool doubles = is_joined && std::has_single_bit(group_.size()) && all * unit <= gathered_by_doubling_up_to;
  return doubles ? allgather_by_doubling(recv, blocks, unit) : allgather_by_ring(recv, blocks, unit);
}

/// Partners at twice the distance each time give each other all that they have.
Result<void> PeerCollectives::allgather_by_doubling(std::byte* recv, const Blocks& blocks, std::size_t unit) {
  for (std::size_t distance = 1; distance < group_.size(); distance *= 2) {
    const std::size_t mine = group_.own & ~(distance - 1);  // first of the blocks that this rank has
    const std::size_t theirs = mine ^ distance;
    const auto bytes = [&](std::size_t first) {
      const std::size_t last = first + distance - 1;
      return (blocks.offset(last) + blocks.count(last) - blocks.offset(first)) * unit;
    };
    const std::size_t partner = group_.own ^ distance;
    auto done = swap(partner, recv + blocks.offset(mine) * unit, bytes(mine), partner,
                     recv + blocks.offset(theirs) * unit, bytes(theirs));
    if (!done) return done;
  }
  return {};
}

/// Blocks go round.
Result<void> PeerCollectives::allgather_by_ring(std::byte* recv, const Blocks& blocks, std::size_t unit) {
  const std::size_t size = group_.size();
  const auto place = [&](std::size_t r) { return recv + blocks.offset(r) * unit; };
  for (std::size_t step = 0; step + 1 < size; ++step) {
    const std::size_t out = (group_.own + size - step) % size;
    const std::size_t in = (out + size - 1) % size;
    auto done = swap((group_.own + 1) % size, place(out), blocks.count(out) * unit, (group_.own + size - 1) % size,
                     place(in), blocks.count(in) * unit);
    if (!done) return done;
  }
  return {};
}

Result<void> PeerCollectives::gather(const std::byte* send_buffer, std::byte* recv, const Blocks& blocks,
                                     std::size_t unit, std::size_t root) {
  if (group_.own != root) return send(root, send_buffer, blocks.count(group_.own) * unit);
  std::vector<Message> receives;
  for (std::size_t r = 0; r < group_.size(); ++r) {
    if (r != root) receives.push_back(message(r, recv + blocks.offset(r) * unit, blocks.count(r) * unit));
  }
  copy_bytes(recv + blocks.offset(root) * unit, send_buffer, blocks.count(root) * unit);
  return transport_.exchange({}, receives, *watchdog_);
}

Result<void> PeerCollectives::scatter(const std::byte* send_buffer, std::byte* recv, const Blocks& blocks,
                                      std::size_t unit, std::size_t root) {
  if (group_.own != root) return receive(root, recv, blocks.count(group_.own) * unit);
  std::vector<Message> sends;
  for (std::size_t r = 0; r < group_.size(); ++r) {
    if (r != root) sends.push_back(message(r, send_buffer + blocks.offset(r) * unit, blocks.count(r) * unit));
  }
  copy_bytes(recv, send_buffer + blocks.offset(root) * unit, blocks.count(root) * unit);
  return transport_.exchange(sends, {}, *watchdog_);
}

/// In place, one pair at a time through the scratch memory; else all at once.
Result<void> PeerCollectives::alltoall(const std::byte* send_buffer, const Blocks& send_blocks, std::byte* recv,
                                       const Blocks& recv_blocks, std::size_t unit) {
  const std::size_t size = group_.size();
  const auto from = [&](std::size_t r) { return send_buffer + send_blocks.offset(r) * unit; };
  const auto to = [&](std::size_t r) { return recv + recv_blocks.offset(r) * unit; };
  copy_bytes(to(group_.own), from(group_.own), send_blocks.count(group_.own) * unit);
  if (send_buffer != recv) {
    std::vector<Message> sends;
    std::vector<Message> receives;
    for (std::size_t k = 1; k < size; ++k) {
      const std::size_t r = (group_.own + k) % size;
      const std::size_t l = (group_.own + size - k) % size;
      sends.push_back(message(r, from(r), send_blocks.count(r) * unit));
      receives.push_back(message(l, to(l), recv_blocks.count(l) * unit));
    }
    return transport_.exchange(sends, receives, *watchdog_);
  }
  for (std::size_t k = 0; k < size; ++k) {  // pairs (a, b) with a + b = k modulo size meet in the same step
    const std::size_t partner = (k + size - group_.own) % size;
    if (partner == group_.own) continue;
    const std::size_t bytes = send_blocks.count(partner) * unit;
    for (std::size_t at = 0; at < std::max<std::size_t>(bytes, 1); at += longest_piece) {
      const std::size_t part = std::min(longest_piece, bytes - at);
      std::byte* const other = scratch(part);
      if (auto done = swap(partner, to(partner) + at, part, partner, other, part); !done) return done;
      copy_bytes(to(partner) + at, other, part);
    }
  }
  return {};
}

}  // namespace amldist::collective
