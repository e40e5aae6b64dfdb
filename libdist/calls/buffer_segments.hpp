// A buffer with segments that lie elsewhere: gradients in the caller's own memory that are reduced together. The buffer
// is then a staging buffer: a segment is copied to it only as far as other ranks need it, and the result is copied
// back.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace amldist::calls {

/// Where some bytes of a buffer are: they are read there, and the result is written there.
struct BufferSegment {
  std::size_t offset = 0;  ///< in the buffer
  std::size_t bytes = 0;
  std::byte* data = nullptr;
};

/// Sorted by offset, without overlap; what lies between them is not used.
using BufferSegments = std::vector<BufferSegment>;

/// Calls `use` for every segment that overlaps bytes `begin` to `end` of the buffer, cut to that range. Does nothing
/// without `segments`.
template <typename Use>
void for_segments(const BufferSegments* segments, std::size_t begin, std::size_t end, Use use) {
  if (segments == nullptr) return;
  const auto end_of = [](const BufferSegment& segment) { return segment.offset + segment.bytes; };
  for (auto segment = std::ranges::upper_bound(*segments, begin, {}, end_of); segment != segments->end(); ++segment) {
    if (segment->offset >= end) return;
    const std::size_t from = std::max(begin, segment->offset);
    use(BufferSegment{from, std::min(end, end_of(*segment)) - from, segment->data + (from - segment->offset)});
  }
}

}  // namespace amldist::calls
