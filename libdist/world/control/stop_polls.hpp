// At which of its should_stop() calls a communicator stops: the same one on all ranks, without a message as long as
// nobody wants to stop.
//
// Each rank counts its calls. When one rank has heard that it should stop, `stop` goes to all ranks over the tree, and
// each control thread, whatever its program does, marks the count and gives it into a gather (tree_gather.hpp). The
// stop is the call after the largest of these counts:
//
//   K = 1 + max(p),  p: a rank's calls when its count was marked
//
// That all ranks return 1 from the same call on: a rank's calls 1..p were answered 0 when nothing was marked, and all
// of them come before K. From call p + 1 on it finds the mark, and waits until it knows K, which is the same for all,
// because all have the same gather. So call k returns k >= K on every rank. The count and the mark are one word: a call
// that does not find the mark is in p.
//
// That nobody waits for a program: K needs the control threads only, which answer while their programs wait in another
// collective or compute. The wait is one gather over the tree, once in the life of a communicator.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

namespace amldist::world {

/// Between the thread that makes the calls and the control thread.
class StopPolls {
 public:
  struct Poll {
    std::uint64_t number = 0;  ///< from 1
    bool is_marked = false;    ///< the answer is in decided()
  };
  /// Counts a call.
  Poll begin() noexcept {
    const std::uint64_t before = count_and_mark_.fetch_add(2, std::memory_order_acq_rel);
    return {before / 2 + 1, (before & mark) != 0};
  }
  /// The calls so far; nullopt if this is not the first time.
  [[nodiscard]] std::optional<std::uint64_t> set_mark() noexcept {
    const std::uint64_t before = count_and_mark_.fetch_or(mark, std::memory_order_acq_rel);
    return (before & mark) == 0 ? std::optional(before / 2) : std::nullopt;
  }
  void decide(std::uint64_t first) noexcept { first_.store(first, std::memory_order_release); }
  /// The first call that is answered with 1; 0: not known yet.
  [[nodiscard]] std::uint64_t decided() const noexcept { return first_.load(std::memory_order_acquire); }

 private:
  static constexpr std::uint64_t mark = 1;

  std::atomic<std::uint64_t> count_and_mark_ = 0;
  std::atomic<std::uint64_t> first_ = 0;
};

}  // namespace amldist::world
