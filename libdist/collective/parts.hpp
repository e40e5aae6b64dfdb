// A buffer of which parts lie elsewhere: gradients of the caller's own that are reduced together. The buffer itself is
// then only where ranks show each other what they need: a part is copied to it, and back, no more than that takes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace amldist::collective {

/// Where some bytes of a buffer lie. In place: they are read there, and the result is written there.
struct Part {
  std::size_t offset = 0;  ///< in the buffer
  std::size_t bytes = 0;
  std::byte* data = nullptr;
};

/// By offset, without overlap; what lies between them is nobody's.
using Parts = std::vector<Part>;

/// Calls `use` with every part, or what there is of it, from byte `begin` of the buffer to byte `end`. Without `parts`
/// nothing lies elsewhere.
template <typename Use>
void for_parts(const Parts* parts, std::size_t begin, std::size_t end, Use use) {
  if (parts == nullptr) return;
  const auto end_of = [](const Part& part) { return part.offset + part.bytes; };
  for (auto part = std::ranges::upper_bound(*parts, begin, {}, end_of); part != parts->end(); ++part) {
    if (part->offset >= end) return;
    const std::size_t from = std::max(begin, part->offset);
    use(Part{from, std::min(end, end_of(*part)) - from, part->data + (from - part->offset)});
  }
}

}  // namespace amldist::collective
