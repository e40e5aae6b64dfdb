#include "collective/buckets/bucket_plan.hpp"

#include <utility>

namespace amldist::collective {
namespace {

/// A unit that is being filled.
struct OpenUnit {
  Unit unit;
  std::size_t filled = 0;  ///< bytes, padding included
};

}  // namespace

std::vector<Unit> plan_buckets(std::span<const PlannedTensor> tensors, const BucketLimits& limits) {
  std::vector<Unit> units;
  OpenUnit bucket;
  OpenUnit separate;
  separate.unit.alone = true;
  bool first = true;
  const auto close = [&](OpenUnit& open) {
    if (open.unit.tensors.empty()) return;
    const bool alone = open.unit.alone;
    open.unit.bytes = alone ? 0 : open.filled;
    units.push_back(std::exchange(open, {}).unit);
    open.unit.alone = alone;
    first = false;
  };
  for (std::size_t i = tensors.size(); i-- > 0;) {
    OpenUnit& open = tensors[i].alone ? separate : bucket;
    const std::size_t padded = (tensors[i].bytes + bucket_alignment - 1) / bucket_alignment * bucket_alignment;
    if (open.filled + padded > (first ? limits.first_bytes : limits.bytes)) close(open);
    open.unit.tensors.push_back({i, open.unit.alone ? 0 : open.filled});
    open.filled += padded;
    if (open.filled >= (first ? limits.first_bytes : limits.bytes)) close(open);
  }
  close(bucket);
  close(separate);
  return units;
}

}  // namespace amldist::collective
