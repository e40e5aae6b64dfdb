// The pieces that the ranks of a communicator contribute to a small all-gather. Ranks with equal pieces share one
// entry, so that ten thousand equal answers take no more room than one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace amldist::calls {

/// Which ranks' pieces a rank receives.
enum class GatherScope : std::uint8_t { all_ranks, node };

class Pieces {
 public:
  /// Neighbouring ranks with equal pieces.
  struct Run {
    std::uint32_t first = 0;
    std::uint32_t count = 1;
    std::string piece;
    friend bool operator==(const Run&, const Run&) = default;
  };

  void add(Run run) { runs_.push_back(std::move(run)); }
  void add(const Pieces& others) { runs_.insert(runs_.end(), others.runs_.begin(), others.runs_.end()); }
  /// Sorts the runs by rank and joins equal neighbours. If a rank has two pieces, one is kept.
  void merge() {
    std::ranges::sort(runs_, {}, &Run::first);
    std::vector<Run> merged;
    for (Run& run : runs_) {
      const std::uint32_t end = merged.empty() ? 0 : merged.back().first + merged.back().count;
      if (!merged.empty() && run.first < end) continue;
      if (!merged.empty() && run.first == end && run.piece == merged.back().piece) merged.back().count += run.count;
      else merged.push_back(std::move(run));
    }
    runs_ = std::move(merged);
  }

  /// Only valid after merge().
  [[nodiscard]] const std::vector<Run>& runs() const noexcept { return runs_; }
  [[nodiscard]] std::size_t size() const noexcept {
    std::size_t ranks = 0;
    for (const Run& run : runs_) ranks += run.count;
    return ranks;
  }
  /// A rank's piece; empty if it contributed nothing.
  [[nodiscard]] const std::string& operator[](std::size_t rank) const {
    static const std::string none;
    const auto next =
        std::ranges::upper_bound(runs_, rank, {}, [](const Run& run) -> std::size_t { return run.first; });
    if (next == runs_.begin()) return none;
    const Run& run = *std::prev(next);
    return rank - run.first < run.count ? run.piece : none;
  }
  /// One piece for each rank from 0 to size() - 1.
  [[nodiscard]] std::vector<std::string> by_rank() const {
    std::vector<std::string> out;
    for (const Run& run : runs_) out.insert(out.end(), run.count, run.piece);
    return out;
  }

 private:
  std::vector<Run> runs_;
};

}  // namespace amldist::calls
