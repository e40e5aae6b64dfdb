// Whether a call can be made: a pure function of its arguments, before any other rank hears of it.
#pragma once

#include <cstdint>

#include "collective/calls/call.hpp"
#include "core/result.hpp"

namespace amldist::collective {

/// Recognises most valid calls by a few comparisons: check_call() has nothing to say about them. False: ask it.
[[nodiscard]] inline bool is_plainly_valid(const Call& call, std::uint32_t size) noexcept {
  const bool has_buffers = call.operation == Operation::send   ? call.send != nullptr
                           : call.operation == Operation::recv ? call.recv != nullptr
                                                               : call.send != nullptr && call.recv != nullptr;
  return has_buffers && call.count >> 32 == 0 && call.recv_counts.empty() &&
         static_cast<std::uint32_t>(call.root) < size;
}

/// The call on rank `rank` of `size`. Errors: invalid_argument for a root, peer, count or list that cannot be, and for
/// a missing buffer. Lists have `size` entries.
[[nodiscard]] Result<void> check_call(const Call& call, std::uint32_t rank, std::uint32_t size);

}  // namespace amldist::collective
