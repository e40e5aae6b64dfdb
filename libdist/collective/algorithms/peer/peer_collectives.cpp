// The parts that all peer algorithms share: messages, packets, scratch memory, and the choice of the algorithm.
#include "collective/algorithms/peer/peer_collectives.hpp"

#include <algorithm>

#include "collective/kernels/copy_bytes.hpp"
#include "collective/tuning/algorithm_choice.hpp"

namespace amldist::collective {

Message PeerCollectives::message(std::size_t peer, const std::byte* data, std::size_t bytes) const {
  return {group_.ranks[peer], const_cast<std::byte*>(data), bytes, signature_, false};  // NOLINT: a send only reads
}

/// Messages are cut into packets of this size; much longer messages would gain nothing.
void PeerCollectives::add_parts(std::vector<Message>& list, std::size_t peer, const std::byte* data, std::size_t bytes,
                                bool has_room) const {
  const std::size_t part = bytes <= tuning::cut_into_packets_up_to ? transport_.part_bytes() : bytes;
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

Result<void> PeerCollectives::swap(std::size_t to, const std::byte* out, std::size_t out_bytes, std::size_t from,
                                   std::byte* in, std::size_t in_bytes) {
  sends_.clear();
  receives_.clear();
  add_parts(sends_, to, out, out_bytes);
  add_parts(receives_, from, in, in_bytes);
  return transport_.exchange(sends_, receives_, *watchdog_);
}

std::byte* PeerCollectives::scratch(std::size_t bytes) {
  if (scratch_.size() < Transport::room + bytes) scratch_.resize(Transport::room + bytes);
  return scratch_.data() + Transport::room;
}

void PeerCollectives::combine(std::byte* into, const std::byte* mine, const std::byte* other, std::size_t count,
                              const calls::Reduction& what, bool other_first) const {
  if (count == 0) return;
  const void* const sources[2] = {other_first ? other : mine, other_first ? mine : other};
  kernels_.fold({into, nullptr, sources, 2, count, 1, Store::cached}, what.type, sum_for_average(what.op));
}

Result<void> PeerCollectives::swap_and_combine(std::size_t to, const std::byte* out, std::size_t out_count,
                                               std::size_t from, const std::byte* mine, std::byte* into,
                                               std::size_t in_count, const calls::Reduction& what, bool other_first) {
  const std::size_t unit = size_of(what.type);
  std::byte* const other = scratch(in_count * unit);
  sends_.clear();
  receives_.clear();
  add_parts(sends_, to, out, out_count * unit);
  add_parts(receives_, from, other, in_count * unit, true);
  return transport_.exchange(sends_, receives_, *watchdog_, [&](std::size_t part) {
    const std::size_t at = part * transport_.part_bytes();
    combine(into + at, mine + at, other + at, receives_[part].bytes / unit, what, other_first);
  });
}

Result<void> PeerCollectives::allreduce(const calls::Reduction& what) {
  const std::size_t unit = size_of(what.type);
  const std::size_t bytes = what.count * unit;
  const std::size_t size = group_.size();
  if (size == 1) {
    copy_bytes(what.recv, what.send, bytes);
    return {};
  }
  const auto algorithm = tuning::choose_peer_allreduce(bytes, size);
  if (algorithm == tuning::PeerAllreduce::direct) return allreduce_direct(what);
  if (algorithm == tuning::PeerAllreduce::recursive_doubling) return allreduce_recursive_doubling(what);
  const bool halves = algorithm == tuning::PeerAllreduce::rabenseifner;
  const std::size_t most = halves ? tuning::rabenseifner_segment / unit : tuning::longest_segment / unit * size;
  for (std::size_t at = 0; at < what.count; at += most) {
    calls::Reduction part = what;
    part.count = std::min(most, what.count - at);
    part.send += at * unit;
    part.recv += at * unit;
    if (auto status = halves ? allreduce_rabenseifner(part) : allreduce_ring(part); !status) return status;
  }
  return {};
}

Result<void> PeerCollectives::allgather(const std::byte* send_buffer, std::byte* recv, const calls::Blocks& blocks,
                                        std::size_t unit) {
  copy_bytes(recv + blocks.offset(group_.own) * unit, send_buffer, blocks.count(group_.own) * unit);
  std::size_t all = 0;
  bool is_contiguous = true;  // blocks are adjacent and in rank order
  for (std::size_t r = 0; r < group_.size(); ++r) {
    is_contiguous = is_contiguous && blocks.offset(r) == blocks.offset(0) + all;
    all += blocks.count(r);
  }
  const auto algorithm = tuning::choose_peer_allgather(all * unit, group_.size(), is_contiguous);
  return algorithm == tuning::PeerAllgather::recursive_doubling ? allgather_recursive_doubling(recv, blocks, unit)
                                                                : allgather_ring(recv, blocks, unit);
}

Result<void> PeerCollectives::scatter(const std::byte* send_buffer, std::byte* recv, const calls::Blocks& blocks,
                                      std::size_t unit, std::size_t root) {
  const bool is_tree = blocks.are_equal() && tuning::is_scatter_tree_faster(blocks.count(0) * unit, group_.size());
  return is_tree ? scatter_binomial_tree(send_buffer, recv, blocks.count(0) * unit, root)
                 : scatter_linear(send_buffer, recv, blocks, unit, root);
}

}  // namespace amldist::collective
