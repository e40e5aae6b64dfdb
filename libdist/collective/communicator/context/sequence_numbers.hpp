// The numbers of a communicator's calls, and the number of messages in each direction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "calls/call.hpp"

namespace amldist::collective {

/// Collectives have the same numbers on all ranks; sends and receives have numbers of their own. Used by the one thread
/// that runs the communicator's calls.
class SequenceNumbers {
 public:
  explicit SequenceNumbers(std::size_t ranks) : sent_(ranks) {}

  /// The number of the call that begins now. `on_device`: its buffers are in a GPU's memory.
  std::uint64_t next(const calls::Call& call, bool on_device) noexcept {
    if (!is_point_to_point(call.operation)) return ++collectives_;
    if (!on_device && call.operation == calls::Operation::send) ++sent_[static_cast<std::size_t>(call.root)];
    if (!on_device && call.operation == calls::Operation::recv) ++received_;
    return ++messages_;
  }
  /// The number of a call that will not begin.
  [[nodiscard]] std::uint64_t peek(const calls::Call& call) const noexcept {
    return (is_point_to_point(call.operation) ? messages_ : collectives_) + 1;
  }
  /// The number of the last collective.
  [[nodiscard]] std::uint64_t collectives() const noexcept { return collectives_; }
  /// Messages of host buffers that began here, by receiving rank.
  [[nodiscard]] std::span<const std::uint64_t> sent() const noexcept { return sent_; }
  /// Receives into host buffers that began here.
  [[nodiscard]] std::uint64_t received() const noexcept { return received_; }

 private:
  std::uint64_t collectives_ = 0;
  std::uint64_t messages_ = 0;
  std::vector<std::uint64_t> sent_;
  std::uint64_t received_ = 0;
};

}  // namespace amldist::collective
