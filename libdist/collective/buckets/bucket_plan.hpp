// Which gradients go into one all-reduce: a pure decision from sizes alone, the same on every rank.
//
// Gradients become ready from the last to the first, so that is the order of buckets. A bucket is closed when the next
// tensor would exceed its limit; the first is small, so that communication starts early. Tensors that are reduced in
// place are grouped in the same way, beside the open bucket: each is reduced by a call of its own, one after the other,
// but only a group is worth waking another thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace amldist::collective {

struct BucketLimits {
  std::size_t first_bytes = std::size_t{1} << 20;
  std::size_t bytes = std::size_t{25} << 20;
};

struct PlannedTensor {
  std::size_t bytes = 0;
  bool alone = false;  ///< reduced in place, without a copy
};

/// A tensor's place in its bucket.
struct Placement {
  std::size_t tensor;
  std::size_t offset;  ///< bytes, a multiple of bucket_alignment
};

/// The unit of launching: a bucket with one all-reduce, or tensors with one each.
struct Unit {
  std::vector<Placement> tensors;  ///< all at 0 if they are `alone`
  std::size_t bytes = 0;           ///< of the bucket's memory, padding included; 0 if they are `alone`
  bool alone = false;

  [[nodiscard]] std::size_t calls() const noexcept { return alone ? tensors.size() : 1; }
};

inline constexpr std::size_t bucket_alignment = 64;

/// Units in the order in which they are launched. Every tensor is in exactly one unit.
[[nodiscard]] std::vector<Unit> plan_buckets(std::span<const PlannedTensor> tensors, const BucketLimits& limits);

}  // namespace amldist::collective
