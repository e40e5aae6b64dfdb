#include "collective/bucket_plan.hpp"

#include <utility>

namespace amldist::collective {

std::vector<Unit> plan_buckets(std::span<const PlannedTensor> tensors, const BucketLimits& limits) {
  std::vector<Unit> units;
  Unit open;
  bool first = true;
  const auto close = [&] {
    if (open.tensors.empty()) return;
    units.push_back(std::exchange(open, {}));
    first = false;
  };
  for (std::size_t i = tensors.size(); i-- > 0;) {
    if (tensors[i].alone) {
      units.push_back({{{i, 0}}, 0, true});
      continue;
    }
    const std::size_t padded = (tensors[i].bytes + bucket_alignment - 1) / bucket_alignment * bucket_alignment;
    const std::size_t limit = first ? limits.first_bytes : limits.bytes;
    if (!open.tensors.empty() && open.bytes + padded > limit) close();
    open.tensors.push_back({i, open.bytes});
    open.bytes += padded;
  }
  close();
  return units;
}

}  // namespace amldist::collective
