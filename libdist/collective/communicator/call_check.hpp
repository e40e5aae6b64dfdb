// Whether a call is valid: a pure function of its arguments, before any other rank is told of the call.
#pragma once

#include <cstdint>
#include <span>

#include "base/text/result.hpp"
#include "calls/call.hpp"

namespace amldist::collective {

/// Recognises most buffers of a collective that do not overlap, and the simple form of a call in place. The largest
/// element has 8 bytes.
[[nodiscard]] inline bool are_plainly_apart(const calls::Call& call, std::uint32_t size) noexcept {
  if (call.send == call.recv)
    return call.operation == calls::Operation::allreduce || call.operation == calls::Operation::broadcast;
  const auto send = reinterpret_cast<std::uintptr_t>(call.send);
  const auto recv = reinterpret_cast<std::uintptr_t>(call.recv);
  return (send > recv ? send - recv : recv - send) >= call.count * 8 * size;
}

/// Recognises most valid calls by a few comparisons, so that check_call() need not be called. False: call it.
[[nodiscard]] inline bool passes_quick_check(const calls::Call& call, std::uint32_t size) noexcept {
  const bool has_odd_elements =
      call.redop > calls::ReduceOp::avg || call.type == calls::DataType::boolean || call.count >> 32 != 0;
  if (has_odd_elements || static_cast<std::uint32_t>(call.root) >= size) return false;
  if (is_point_to_point(call.operation))
    return (call.operation == calls::Operation::send ? call.send : call.recv) != nullptr;
  return call.send != nullptr && call.recv != nullptr && !is_listed(call.operation) && are_plainly_apart(call, size);
}

/// Checks a call on rank `rank` of `size`. Errors: invalid_argument for a root, peer, count or list that is out of
/// range, for a missing buffer, for an operator that the type lacks, and for buffers that overlap other than in place.
/// Lists have `size` entries.
[[nodiscard]] Result<void> check_call(const calls::Call& call, std::uint32_t rank, std::uint32_t size);

/// Checks the messages of one group, each of which was checked. Errors: invalid_argument if one is received into memory
/// that another one sends.
[[nodiscard]] Result<void> check_group(std::span<const calls::Call> messages);

}  // namespace amldist::collective
