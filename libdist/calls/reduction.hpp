// A reduction as the algorithms see it: buffers, type and operator.
#pragma once

#include <cstddef>

#include "calls/buffer_segments.hpp"
#include "calls/data_type.hpp"

namespace amldist::calls {

/// What to reduce and how. `divisor` is for ReduceOp::avg.
struct Reduction {
  const std::byte* send = nullptr;
  std::byte* recv = nullptr;
  std::size_t count = 0;
  DataType type = DataType::uint8;
  ReduceOp op = ReduceOp::sum;
  std::size_t divisor = 1;
  const BufferSegments* segments = nullptr;  ///< parts of `recv` that lie elsewhere; all-reduce in place
};

/// The operator inside a hierarchy: for an average each level sums, and the caller divides once at the end.
[[nodiscard]] constexpr ReduceOp sum_for_average(ReduceOp op) noexcept {
  return op == ReduceOp::avg ? ReduceOp::sum : op;
}

}  // namespace amldist::calls
