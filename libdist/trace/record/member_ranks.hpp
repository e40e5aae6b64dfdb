// The members of a communicator as ranks of the world: a regular row, of constant size for any length, or a list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace amldist::trace {

/// srun keeps one for each communicator of each rank; lists for all worlds would grow with the square of the step.
class MemberRanks {
 public:
  MemberRanks() = default;
  /// first, first + stride, first + 2 * stride, ...
  static MemberRanks row(std::uint32_t first, std::int32_t stride, std::size_t size) noexcept {
    MemberRanks ranks;
    ranks.first_ = first;
    ranks.stride_ = stride;
    ranks.size_ = size;
    return ranks;
  }
  /// Stores a list, as a row if it is one.
  static MemberRanks of(std::span<const std::uint32_t> list) {
    const std::uint32_t stride = list.size() > 1 ? list[1] - list[0] : 1;
    MemberRanks ranks = row(list.empty() ? 0 : list[0], static_cast<std::int32_t>(stride), list.size());
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (ranks[i] == list[i]) continue;
      ranks.list_.assign(list.begin(), list.end());
      break;
    }
    return ranks;
  }

  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool is_row() const noexcept { return size_ != 0 && list_.empty(); }
  [[nodiscard]] std::int32_t stride() const noexcept { return stride_; }
  /// `index` below size().
  [[nodiscard]] std::uint32_t operator[](std::size_t index) const noexcept {
    if (!list_.empty()) return list_[index];
    return first_ + static_cast<std::uint32_t>(index) * static_cast<std::uint32_t>(stride_);
  }
  [[nodiscard]] std::vector<std::uint32_t> to_list() const {
    std::vector<std::uint32_t> list(size_);
    for (std::size_t i = 0; i < size_; ++i) list[i] = (*this)[i];
    return list;
  }

 private:
  std::uint32_t first_ = 0;
  std::int32_t stride_ = 1;
  std::size_t size_ = 0;
  std::vector<std::uint32_t> list_;
};

}  // namespace amldist::trace
