// Blocks: each rank's share of a buffer.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace amldist::calls {

/// One block of a buffer for each rank of a group: equal blocks in rank order, or explicit lists. In elements.
class Blocks {
 public:
  explicit Blocks(std::size_t each) : each_(each) {}
  Blocks(std::span<const std::size_t> counts, std::span<const std::size_t> offsets)
      : counts_(counts), offsets_(offsets) {}
  /// Equal parts: every rank knows the size of each.
  [[nodiscard]] bool are_equal() const { return counts_.empty(); }
  [[nodiscard]] std::size_t count(std::size_t rank) const { return counts_.empty() ? each_ : counts_[rank]; }
  /// Each rank has its own counts, which the call's signature does not cover.
  [[nodiscard]] bool are_listed() const { return !counts_.empty(); }
  [[nodiscard]] std::size_t offset(std::size_t rank) const { return offsets_.empty() ? each_ * rank : offsets_[rank]; }

 private:
  std::size_t each_ = 0;
  std::span<const std::size_t> counts_;
  std::span<const std::size_t> offsets_;
};

/// Where a rank's block begins, in units of `unit` bytes. nullptr if it is empty; `buffer` may be nullptr then.
template <typename Byte>
[[nodiscard]] Byte* block_of(Byte* buffer, const Blocks& blocks, std::size_t rank, std::size_t unit) {
  return blocks.count(rank) == 0 ? nullptr : buffer + blocks.offset(rank) * unit;
}

/// Explicit blocks that own their lists.
class BlockList {
 public:
  void add(std::size_t count, std::size_t offset) {
    counts_.push_back(count);
    offsets_.push_back(offset);
    sum_ += count;
  }
  void append(std::size_t count) { add(count, sum_); }
  [[nodiscard]] std::size_t sum() const { return sum_; }
  [[nodiscard]] Blocks view() const { return {counts_, offsets_}; }

 private:
  std::vector<std::size_t> counts_;
  std::vector<std::size_t> offsets_;
  std::size_t sum_ = 0;
};

}  // namespace amldist::calls
