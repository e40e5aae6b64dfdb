#include "collective/peer_collectives.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace amldist::collective {
namespace {

// A step of a collective takes about as long as sending so many bytes more (measured by tests/bench/between_nodes).
constexpr std::size_t bytes_of_a_step = 32768;
// Pieces of a ring, and so the scratch memory.
constexpr std::size_t longest_piece = 1UL << 20;

/// Whether few steps with all the data take less than a ring's many steps with slices of it.
bool doubles(std::size_t bytes, std::size_t ranks) noexcept {
  const std::size_t core = std::bit_floor(ranks);
  const auto steps = static_cast<std::size_t>(std::bit_width(core)) - 1 + (core == ranks ? 0 : 2);
  const std::size_t of_ring = 2 * (ranks - 1);
  return bytes <= longest_piece && steps * (bytes_of_a_step + bytes) <= of_ring * (bytes_of_a_step + bytes / ranks);
}

void copy_bytes(std::byte* to, const std::byte* from, std::size_t bytes) {
  if (bytes != 0 && to != from) std::memcpy(to, from, bytes);
}

}  // namespace

Message PeerCollectives::message(std::size_t peer, const std::byte* data, std::size_t bytes) const {
  return {group_.ranks[peer], const_cast<std::byte*>(data), bytes, signature_};  // NOLINT: a send only reads
}

Result<void> PeerCollectives::swap(std::size_t to, const std::byte* out, std::size_t out_bytes, std::size_t from,
                                   std::byte* in, std::size_t in_bytes) {
  const Message sent = message(to, out, out_bytes);
  const Message received = message(from, in, in_bytes);
  return transport_.exchange({&sent, 1}, {&received, 1}, *vigil_);
}

Result<void> PeerCollectives::send(std::size_t to, const std::byte* data, std::size_t bytes) {
  const Message sent = message(to, data, bytes);
  return transport_.exchange({&sent, 1}, {}, *vigil_);
}

Result<void> PeerCollectives::receive(std::size_t from, std::byte* data, std::size_t bytes) {
  const Message received = message(from, data, bytes);
  return transport_.exchange({}, {&received, 1}, *vigil_);
}

void PeerCollectives::combine(std::byte* into, const std::byte* other, std::size_t count, const Reduction& what,
                              bool other_first) const {
  if (count == 0) return;
  const void* const sources[2] = {other_first ? other : into, other_first ? into : other};
  const ReduceOp op = what.op == ReduceOp::avg ? ReduceOp::sum : what.op;
  kernels_.fold({into, nullptr, sources, 2, count, 1, Store::cached}, what.type, op);
}

std::byte* PeerCollectives::scratch(std::size_t bytes) {
  if (scratch_.size() < bytes) scratch_.resize(bytes);
  return scratch_.data();
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

Result<void> PeerCollectives::allreduce(const Reduction& what) {
  const std::size_t unit = size_of(what.type);
  copy_bytes(what.recv, what.send, what.count * unit);
  if (group_.size() == 1) return {};
  if (doubles(what.count * unit, group_.size())) return allreduce_by_doubling(what.recv, what);
  const std::size_t most = longest_piece / unit * group_.size();
  for (std::size_t at = 0; at < what.count; at += most) {
    Reduction part = what;
    part.count = std::min(most, what.count - at);
    if (auto done = allreduce_by_ring(what.recv + at * unit, part); !done) return done;
  }
  return {};
}

/// Recursive doubling. Ranks beyond the largest power of two give their data to a partner first and get the result
/// back.
Result<void> PeerCollectives::allreduce_by_doubling(std::byte* data, const Reduction& what) {
  const std::size_t bytes = what.count * size_of(what.type);
  const std::size_t core = std::bit_floor(group_.size());
  const std::size_t own = group_.own;
  std::byte* const other = scratch(bytes);
  if (own >= core) {
    if (auto sent = send(own - core, data, bytes); !sent) return sent;
    return receive(own - core, data, bytes);
  }
  const bool has_guest = own + core < group_.size();
  if (has_guest) {
    if (auto got = receive(own + core, other, bytes); !got) return got;
    combine(data, other, what.count, what, false);
  }
  for (std::size_t distance = 1; distance < core; distance *= 2) {
    const std::size_t partner = own ^ distance;
    if (auto done = swap(partner, data, bytes, partner, other, bytes); !done) return done;
    combine(data, other, what.count, what, partner < own);
  }
  return has_guest ? send(own + core, data, bytes) : Result<void>();
}

/// Slices go round: every rank adds its own to what comes, then the finished slices go round.
Result<void> PeerCollectives::allreduce_by_ring(std::byte* data, const Reduction& what) {
  const std::size_t unit = size_of(what.type);
  const std::size_t size = group_.size();
  const std::size_t next = (group_.own + 1) % size;
  const std::size_t previous = (group_.own + size - 1) % size;
  const std::size_t each = (what.count + size - 1) / size;
  const auto begin = [&](std::size_t slice) { return std::min(what.count, slice * each); };
  const auto count = [&](std::size_t slice) { return begin(slice + 1) - begin(slice); };
  std::byte* const other = scratch(each * unit);
  for (std::size_t step = 0; step + 1 < size; ++step) {
    const std::size_t out = (group_.own + size - step) % size;
    const std::size_t in = (out + size - 1) % size;
    auto done = swap(next, data + begin(out) * unit, count(out) * unit, previous, other, count(in) * unit);
    if (!done) return done;
    combine(data + begin(in) * unit, other, count(in), what, true);
  }
  for (std::size_t step = 0; step + 1 < size; ++step) {
    const std::size_t out = (group_.own + 1 + size - step) % size;
    const std::size_t in = (out + size - 1) % size;
    auto done =
        swap(next, data + begin(out) * unit, count(out) * unit, previous, data + begin(in) * unit, count(in) * unit);
    if (!done) return done;
  }
  return {};
}

/// A binomial tree, in pieces.
Result<void> PeerCollectives::reduce(const Reduction& what, std::size_t root) {
  const std::size_t unit = size_of(what.type);
  const std::size_t size = group_.size();
  const std::size_t own = (group_.own + size - root) % size;
  const std::size_t most = longest_piece / unit;
  for (std::size_t at = 0; at < what.count; at += most) {
    const std::size_t count = std::min(most, what.count - at);
    const std::size_t bytes = count * unit;
    std::byte* const other = scratch(2 * bytes);
    std::byte* const data = own == 0 ? what.recv + at * unit : other + bytes;
    copy_bytes(data, what.send + at * unit, bytes);
    for (std::size_t distance = 1; distance < size; distance *= 2) {
      if ((own & distance) != 0) {
        if (auto sent = send((own - distance + root) % size, data, bytes); !sent) return sent;
        break;
      }
      if (own + distance >= size) continue;
      if (auto got = receive((own + distance + root) % size, other, bytes); !got) return got;
      combine(data, other, count, what, false);
    }
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
    if (auto sent = transport_.exchange(sends, {}, *vigil_); !sent) return sent;
  }
  return {};
}

Result<void> PeerCollectives::allgather(const std::byte* send_buffer, std::byte* recv, const Blocks& blocks,
                                        std::size_t unit) {
  const std::size_t size = group_.size();
  const auto place = [&](std::size_t r) { return recv + blocks.offset(r) * unit; };
  copy_bytes(place(group_.own), send_buffer, blocks.count(group_.own) * unit);
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
  return transport_.exchange({}, receives, *vigil_);
}

Result<void> PeerCollectives::scatter(const std::byte* send_buffer, std::byte* recv, const Blocks& blocks,
                                      std::size_t unit, std::size_t root) {
  if (group_.own != root) return receive(root, recv, blocks.count(group_.own) * unit);
  std::vector<Message> sends;
  for (std::size_t r = 0; r < group_.size(); ++r) {
    if (r != root) sends.push_back(message(r, send_buffer + blocks.offset(r) * unit, blocks.count(r) * unit));
  }
  copy_bytes(recv, send_buffer + blocks.offset(root) * unit, blocks.count(root) * unit);
  return transport_.exchange(sends, {}, *vigil_);
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
    return transport_.exchange(sends, receives, *vigil_);
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

/// Every rank gets all others' parts of its block, piece by piece, and folds them in rank order.
Result<void> PeerCollectives::reduce_scatter(const Reduction& what, const Blocks& blocks) {
  const std::size_t unit = size_of(what.type);
  const std::size_t size = group_.size();
  std::size_t longest = 0;
  for (std::size_t r = 0; r < size; ++r) longest = std::max(longest, blocks.count(r));
  const std::size_t piece = std::max<std::size_t>(1, longest_piece / unit / size);
  std::byte* const parts = scratch(piece * unit * size);
  std::vector<const void*> sources(size);
  const ReduceOp op = what.op == ReduceOp::avg ? ReduceOp::sum : what.op;
  for (std::size_t at = 0; at < std::max<std::size_t>(longest, 1); at += piece) {
    const auto part = [&](std::size_t r) { return std::min(piece, blocks.count(r) - std::min(blocks.count(r), at)); };
    std::vector<Message> sends;
    std::vector<Message> receives;
    for (std::size_t r = 0; r < size; ++r) {
      const std::byte* const mine = what.send + (blocks.offset(r) + at) * unit;
      sources[r] = r == group_.own ? mine : parts + r * piece * unit;
      if (r == group_.own) continue;
      sends.push_back(message(r, mine, part(r) * unit));
      receives.push_back(message(r, parts + r * piece * unit, part(group_.own) * unit));
    }
    if (auto done = transport_.exchange(sends, receives, *vigil_); !done) return done;
    if (part(group_.own) == 0) continue;
    kernels_.fold({what.recv + at * unit, nullptr, sources.data(), size, part(group_.own), 1, Store::cached}, what.type,
                  op);
  }
  return {};
}

}  // namespace amldist::collective
