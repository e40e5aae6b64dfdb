// How a rank's state and the diagnosis on a communicator travel.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "world/control/control_frame.hpp"
#include "world/control/diagnosis.hpp"

namespace amldist::world {

/// What a rank is doing, as bytes that are equal for ranks that do the same: for whom a collective waits is told in
/// small communicators only. `watch` nullptr: the communicator is not here.
[[nodiscard]] std::string state_bytes(const CommWatch* watch);
/// Without name.
[[nodiscard]] RankState read_state(const std::string& bytes);

void write_trigger(FrameWriter& writer, const DiagnosisTrigger& trigger);
[[nodiscard]] DiagnosisTrigger read_trigger(Frame& frame);

/// Counts for and of the other ranks of an alltoallv, without those of ranks that are not in `witnesses`.
void write_pair_counts(FrameWriter& writer, const PairCounts& pairs, const std::vector<std::uint32_t>& witnesses);
/// As long as the communicator has ranks: zero for those that are not in `witnesses`.
[[nodiscard]] PairCounts read_pair_counts(Frame& frame, const std::vector<std::uint32_t>& witnesses, std::size_t size);

}  // namespace amldist::world
