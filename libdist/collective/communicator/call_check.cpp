#include "collective/communicator/call_check.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "base/text/text.hpp"

namespace amldist::collective {
namespace {

using text::concat;

Error refusal(const calls::Call& call, std::string_view why) {
  return {Errc::invalid_argument, concat({to_string(call.operation), ": ", why})};
}

bool is_used(std::span<const std::size_t> counts) {
  return std::ranges::any_of(counts, [](std::size_t count) { return count != 0; });
}

/// Checks one rank's lists in allgatherv, reduce_scatterv or alltoallv. `most`: elements that any memory can have.
Result<void> check_lists(const calls::Call& call, std::size_t own, std::size_t most) {
  const auto differ = [&](std::size_t given, std::string_view where, std::size_t expected) {
    return refusal(call, concat({std::to_string(given), where, std::to_string(expected)}));
  };
  for (const auto list :
       {call.lists->send_counts, call.lists->send_offsets, call.lists->recv_counts, call.lists->recv_offsets}) {
    if (std::ranges::any_of(list, [&](std::size_t number) { return number > most; }))
      return refusal(call, "a count or an offset is beyond any memory");
  }
  const bool gathers = call.operation == calls::Operation::allgatherv;
  const bool crosses = call.operation == calls::Operation::alltoallv;
  if (gathers && call.count != call.lists->recv_counts[own])
    return differ(call.count, " elements are given, but counts[own rank] is ", call.lists->recv_counts[own]);
  if (crosses && call.lists->send_counts[own] != call.lists->recv_counts[own])
    return differ(call.lists->send_counts[own], " elements are sent to the own rank, which expects ",
                  call.lists->recv_counts[own]);
  if (call.send == nullptr && (gathers ? call.count != 0 : is_used(call.lists->send_counts)))
    return refusal(call, "the buffer to send is NULL");
  const bool receives = gathers || crosses ? is_used(call.lists->recv_counts) : call.count != 0;
  if (call.recv == nullptr && receives) return refusal(call, "the buffer to receive is NULL");
  return {};
}

/// Checks the buffers of a call with at least one element.
Result<void> check_buffers(const calls::Call& call, bool is_root) {
  const calls::Operation operation = call.operation;
  if (operation == calls::Operation::broadcast)
    return call.recv == nullptr ? Result<void>(refusal(call, "the buffer is NULL")) : Result<void>();
  const bool sends = operation != calls::Operation::recv && (operation != calls::Operation::scatter || is_root);
  const bool gathers_to_root = operation == calls::Operation::reduce || operation == calls::Operation::gather;
  const bool receives = operation != calls::Operation::send && (!gathers_to_root || is_root);
  if (sends && call.send == nullptr) return refusal(call, "the buffer to send is NULL");
  if (receives && call.recv == nullptr) return refusal(call, "the buffer to receive is NULL");
  return {};
}

/// A range of memory.
struct Range {
  std::uintptr_t begin = 0;
  std::uintptr_t bytes = 0;
};
Range range_of(const void* data, std::uintptr_t bytes) { return {reinterpret_cast<std::uintptr_t>(data), bytes}; }
bool do_overlap(const Range& a, const Range& b) {
  if (a.bytes == 0 || b.bytes == 0) return false;
  return a.begin < b.begin ? b.begin - a.begin < a.bytes : a.begin - b.begin < b.bytes;
}

/// The ranges that a call reads and writes, and whether the send buffer may lie in the receive buffer or the reverse.
struct Buffers {
  Range send;
  Range recv;
  bool is_in_place = false;
};

/// The ranges of a call without lists.
Buffers buffers_of(const calls::Call& call, std::uint32_t rank, std::uint32_t size) {
  const std::uintptr_t one = call.count * size_of(call.type);
  const std::uintptr_t all = one * size;
  const bool is_root = call.root == static_cast<int>(rank);
  const auto buffers = [&](std::uintptr_t sent, std::uintptr_t got, std::uintptr_t send_at, std::uintptr_t recv_at) {
    Buffers out = {range_of(call.send, sent), range_of(call.recv, got)};
    out.is_in_place = out.send.begin + recv_at == out.recv.begin + send_at;
    return out;
  };
  switch (call.operation) {
    case calls::Operation::allreduce:
      return buffers(one, one, 0, 0);
    case calls::Operation::reduce:
      return is_root ? buffers(one, one, 0, 0) : Buffers();
    case calls::Operation::allgather:
      return buffers(one, all, rank * one, 0);
    case calls::Operation::reduce_scatter:
      return buffers(all, one, 0, rank * one);
    case calls::Operation::alltoall:
      return buffers(all, all, 0, 0);
    case calls::Operation::gather:
      return is_root ? buffers(one, all, rank * one, 0) : Buffers();
    case calls::Operation::scatter:
      return is_root ? buffers(all, one, 0, rank * one) : Buffers();
    default:  // one buffer, or no buffer
      return {};
  }
}

Error overlap(const calls::Call& call) {
  return refusal(call, "the buffers to send and to receive overlap, other than in place");
}

/// The non-empty blocks of a list, sorted by address.
std::vector<Range> blocks_of(const void* data, std::span<const std::size_t> counts,
                             std::span<const std::size_t> offsets, std::size_t unit) {
  std::vector<Range> out;
  for (std::size_t r = 0; r < counts.size(); ++r) {
    if (counts[r] == 0) continue;
    out.push_back(range_of(data, counts[r] * unit));
    out.back().begin += offsets[r] * unit;
  }
  std::ranges::sort(out, {}, &Range::begin);
  return out;
}

/// Whether a range of one list overlaps one of the other; both are sorted.
bool do_any_overlap(const std::vector<Range>& a, const std::vector<Range>& b) {
  for (std::size_t i = 0, k = 0; i < a.size() && k < b.size();) {
    if (do_overlap(a[i], b[k])) return true;
    if (a[i].begin + a[i].bytes < b[k].begin + b[k].bytes) ++i;
    else ++k;
  }
  return false;
}

/// From the lowest to the highest element of a list.
Range extent_of(const void* data, std::span<const std::size_t> counts, std::span<const std::size_t> offsets,
                std::size_t unit) {
  std::size_t low = SIZE_MAX;
  std::size_t high = 0;
  for (std::size_t r = 0; r < counts.size(); ++r) {
    if (counts[r] == 0) continue;
    low = std::min(low, offsets[r]);
    high = std::max(high, offsets[r] + counts[r]);
  }
  if (high == 0) return {};
  return {reinterpret_cast<std::uintptr_t>(data) + low * unit, (high - low) * unit};
}

Result<void> check_lists_apart(const calls::Call& call, std::size_t own) {
  const std::size_t unit = size_of(call.type);
  if (call.operation == calls::Operation::reduce_scatterv) {
    const Range got = range_of(call.recv, call.count * unit);
    const auto block = reinterpret_cast<std::uintptr_t>(call.send) + call.lists->send_offsets[own] * unit;
    const bool fine = got.begin == block || !do_any_overlap({got}, blocks_of(call.send, call.lists->send_counts,
                                                                             call.lists->send_offsets, unit));
    return fine ? Result<void>() : overlap(call);
  }
  const Range sent = call.operation == calls::Operation::alltoallv
                         ? extent_of(call.send, call.lists->send_counts, call.lists->send_offsets, unit)
                         : range_of(call.send, call.count * unit);
  if (!do_overlap(sent, extent_of(call.recv, call.lists->recv_counts, call.lists->recv_offsets, unit))) return {};
  const auto recv = blocks_of(call.recv, call.lists->recv_counts, call.lists->recv_offsets, unit);
  if (call.operation == calls::Operation::alltoallv) {
    const auto send = blocks_of(call.send, call.lists->send_counts, call.lists->send_offsets, unit);
    return do_any_overlap(send, recv) ? Result<void>(overlap(call)) : Result<void>();
  }
  const auto place = reinterpret_cast<std::uintptr_t>(call.recv) + call.lists->recv_offsets[own] * unit;
  if (sent.begin == place || !do_any_overlap({sent}, recv)) return {};
  return overlap(call);
}

}  // namespace

Result<void> check_group(std::span<const calls::Call> messages) {
  std::vector<Range> sent;
  std::vector<Range> received;
  for (const calls::Call& call : messages) {
    const std::uintptr_t bytes = call.count * size_of(call.type);
    if (bytes == 0) continue;
    if (call.operation == calls::Operation::send) sent.push_back(range_of(call.send, bytes));
    else received.push_back(range_of(call.recv, bytes));
  }
  std::ranges::sort(sent, {}, &Range::begin);
  std::ranges::sort(received, {}, &Range::begin);
  if (!do_any_overlap(sent, received)) return {};
  return Error{Errc::invalid_argument, "amldist_group_end: a message is received into memory that another one sends"};
}

Result<void> check_call(const calls::Call& call, std::uint32_t rank, std::uint32_t size) {
  const bool rooted = has_root(call.operation);
  const bool is_from_any = call.operation == calls::Operation::recv && call.tag != calls::Call::untagged &&
                           call.root == calls::Call::any_source;
  const bool has_peer = is_point_to_point(call.operation) && !is_from_any;
  if ((rooted || has_peer) && static_cast<std::uint32_t>(call.root) >= size) {
    return refusal(call, concat({rooted ? "root " : "peer ", std::to_string(call.root),
                                 " is not one of the ranks 0 to ", std::to_string(size - 1)}));
  }
  const auto most = [&] { return SIZE_MAX / 2 / size_of(call.type) / size; };
  const bool worth_dividing =
      call.count >> 32 != 0;  // below this, not even 2^28 ranks of 8 bytes each exceed the limit
  if (worth_dividing && call.count > most()) return refusal(call, "the count is beyond any memory");
  if (is_reduction(call.operation) && !can_combine(call.type, call.redop))
    return refusal(call, concat({to_string(call.type), " cannot be combined by ", to_string(call.redop)}));
  if (is_listed(call.operation)) {
    auto valid = check_lists(call, rank, most());
    return valid ? check_lists_apart(call, rank) : valid;
  }
  if (call.count == 0 || call.operation == calls::Operation::barrier) return {};
  if (auto status = check_buffers(call, call.root == static_cast<int>(rank)); !status) return status;
  const Buffers buffers = buffers_of(call, rank, size);
  return buffers.is_in_place || !do_overlap(buffers.send, buffers.recv) ? Result<void>() : overlap(call);
}

}  // namespace amldist::collective
