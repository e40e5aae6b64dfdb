// What the ranks of a communicator answer when they are asked what they are doing, merged: ranks that are in the same
// state share one entry, so that in the usual case an answer does not grow with the number of ranks. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "world/control/control_frame.hpp"

namespace amldist::world {

class MergedStates {
 public:
  /// Neighbouring ranks of the communicator.
  struct Run {
    std::uint32_t first = 0;
    std::uint32_t count = 1;
  };

  /// `state`: as bytes; what is equal is merged.
  void add(std::uint32_t rank, std::string state) { states_[std::move(state)].push_back({rank, 1}); }
  void add(const MergedStates& others);
  [[nodiscard]] bool empty() const noexcept { return states_.empty(); }
  /// Joins neighbouring runs.
  void merge();
  [[nodiscard]] const std::map<std::string, std::vector<Run>>& states() const noexcept { return states_; }

  void write(FrameWriter& writer) const;
  /// Ranks of `size` and above are left out.
  [[nodiscard]] static MergedStates read(Frame& frame, std::uint32_t size);

 private:
  std::map<std::string, std::vector<Run>> states_;
};

/// Ranks in any order, as they travel: as runs.
void write_ranks(FrameWriter& writer, const std::vector<std::uint32_t>& ranks);
/// Ranks of `size` and above are left out.
[[nodiscard]] std::vector<std::uint32_t> read_ranks(Frame& frame, std::uint32_t size);

}  // namespace amldist::world
