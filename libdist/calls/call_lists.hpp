// The counts and offsets of a call in which each rank has its own.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace amldist::calls {

/// In elements, an entry for each rank; empty where the operation has none.
struct CallLists {
  std::span<const std::size_t> send_counts;   ///< alltoallv, reduce_scatterv
  std::span<const std::size_t> send_offsets;  ///< alltoallv, reduce_scatterv
  std::span<const std::size_t> recv_counts;   ///< alltoallv, allgatherv
  std::span<const std::size_t> recv_offsets;  ///< alltoallv, allgatherv
};

/// A copy with memory of its own: the caller's may be gone before the call runs.
class OwnedLists {
 public:
  explicit OwnedLists(const CallLists& lists)
      : numbers_{copy(lists.send_counts), copy(lists.send_offsets), copy(lists.recv_counts), copy(lists.recv_offsets)},
        view_{numbers_[0], numbers_[1], numbers_[2], numbers_[3]} {}
  OwnedLists(const OwnedLists&) = delete;
  OwnedLists& operator=(const OwnedLists&) = delete;
  ~OwnedLists() = default;

  [[nodiscard]] const CallLists& view() const noexcept { return view_; }

 private:
  using Numbers = std::vector<std::size_t>;
  [[nodiscard]] static Numbers copy(std::span<const std::size_t> list) { return {list.begin(), list.end()}; }

  const std::array<Numbers, 4> numbers_;
  const CallLists view_;
};

}  // namespace amldist::calls
