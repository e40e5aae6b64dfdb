// The parts of a buffer that belong to the ranks of a group, equal or listed.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace amldist::collective {

/// A part of a buffer for each rank of a group: equal parts one behind the other, or by explicit lists. In elements.
class Blocks {
 public:
  explicit Blocks(std::size_t each) : each_(each) {}
  Blocks(std::span<const std::size_t> counts, std::span<const std::size_t> offsets)
      : counts_(counts), offsets_(offsets) {}
  /// Equal parts: every rank knows the size of each.
  [[nodiscard]] bool are_equal() const { return counts_.empty(); }
  [[nodiscard]] std::size_t count(std::size_t rank) const { return counts_.empty() ? each_ : counts_[rank]; }
  /// Each rank has counts of its own, which the call's signature does not know.
  [[nodiscard]] bool are_listed() const { return !counts_.empty(); }
  [[nodiscard]] std::size_t offset(std::size_t rank) const { return offsets_.empty() ? each_ * rank : offsets_[rank]; }

 private:
  std::size_t each_ = 0;
  std::span<const std::size_t> counts_;
  std::span<const std::size_t> offsets_;
};

/// Listed blocks that have their own lists.
class BlockList {
 public:
  void add(std::size_t count, std::size_t offset) {
    counts_.push_back(count);
    offsets_.push_back(offset);
    sum_ += count;
  }
  /// Behind those that are there.
  void append(std::size_t count) { add(count, sum_); }
  [[nodiscard]] std::size_t sum() const { return sum_; }
  [[nodiscard]] Blocks view() const { return {counts_, offsets_}; }

 private:
  std::vector<std::size_t> counts_;
  std::vector<std::size_t> offsets_;
  std::size_t sum_ = 0;
};

}  // namespace amldist::collective
