#include "collective/communicator/call_check.hpp"

#include <algorithm>
#include <string>

#include "core/text.hpp"

namespace amldist::collective {
namespace {

using text::concat;

Error refusal(const Call& call, std::string_view why) {
  return {Errc::invalid_argument, concat({to_string(call.operation), ": ", why})};
}

bool is_used(std::span<const std::size_t> counts) {
  return std::ranges::any_of(counts, [](std::size_t count) { return count != 0; });
}

/// Of one rank's lists in allgatherv or alltoallv. `most`: elements that any memory can have.
Result<void> check_lists(const Call& call, std::size_t own, std::size_t most) {
  const auto differ = [&](std::size_t given, std::string_view where, std::size_t expected) {
    return refusal(call, concat({std::to_string(given), where, std::to_string(expected)}));
  };
  for (const auto list : {call.send_counts, call.send_offsets, call.recv_counts, call.recv_offsets}) {
    if (std::ranges::any_of(list, [&](std::size_t number) { return number > most; }))
      return refusal(call, "a count or an offset is beyond any memory");
  }
  const bool gathers = call.operation == Operation::allgatherv;
  if (gathers && call.count != call.recv_counts[own])
    return differ(call.count, " elements are given, but counts[own rank] is ", call.recv_counts[own]);
  if (!gathers && call.send_counts[own] != call.recv_counts[own])
    return differ(call.send_counts[own], " elements are sent to the own rank, which expects ", call.recv_counts[own]);
  if (call.send == nullptr && (gathers ? call.count != 0 : is_used(call.send_counts)))
    return refusal(call, "the buffer to send is NULL");
  if (call.recv == nullptr && is_used(call.recv_counts)) return refusal(call, "the buffer to receive is NULL");
  return {};
}

/// Of a call with at least one element.
Result<void> check_buffers(const Call& call, bool is_root) {
  const Operation operation = call.operation;
  if (operation == Operation::broadcast)
    return call.recv == nullptr ? Result<void>(refusal(call, "the buffer is NULL")) : Result<void>();
  const bool sends = operation != Operation::recv && (operation != Operation::scatter || is_root);
  const bool gathers_to_root = operation == Operation::reduce || operation == Operation::gather;
  const bool receives = operation != Operation::send && (!gathers_to_root || is_root);
  if (sends && call.send == nullptr) return refusal(call, "the buffer to send is NULL");
  if (receives && call.recv == nullptr) return refusal(call, "the buffer to receive is NULL");
  return {};
}

}  // namespace

Result<void> check_call(const Call& call, std::uint32_t rank, std::uint32_t size) {
  const bool rooted = has_root(call.operation);
  if ((rooted || is_point_to_point(call.operation)) && static_cast<std::uint32_t>(call.root) >= size) {
    return refusal(call, concat({rooted ? "root " : "peer ", std::to_string(call.root),
                                 " is not one of the ranks 0 to ", std::to_string(size - 1)}));
  }
  const auto most = [&] { return SIZE_MAX / 2 / size_of(call.type) / size; };
  const bool worth_dividing = call.count >> 32 != 0;  // below, not even 2^28 ranks of 8 bytes each pass the limit
  if (worth_dividing && call.count > most()) return refusal(call, "the count is beyond any memory");
  if (call.operation == Operation::alltoallv || call.operation == Operation::allgatherv)
    return check_lists(call, rank, most());
  if (call.count == 0 || call.operation == Operation::barrier) return {};
  return check_buffers(call, call.root == static_cast<int>(rank));
}

}  // namespace amldist::collective
