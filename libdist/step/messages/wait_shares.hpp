// What a node tells srun, under hang=, about how its ranks spent the last minute (trace/diagnosis/straggler.hpp). Both
// ends treat it as hostile.
//
//   node2 2:0:40:612:612:g9ae16a3b2f90404f=500+r1=112,3:1:40:14:20:
//
// After the host, for each rank: its number, local rank, calls in a minute, the time that it waited and may have waited
// at most, in thousandths, and for whom: members of a group (g, with its id) or a rank (r).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trace/diagnosis/straggler.hpp"

namespace amldist::step {

/// Longest text, in bytes.
inline constexpr std::size_t longest_wait_shares = 1000;

/// Adds a rank of `host` to the last of the texts, or to a new one if that is full.
void add_wait_share(std::string_view host, const trace::OwnWaits& rank, std::vector<std::string>& texts);

/// nullopt for a text that add_wait_share() cannot have written on a node of a step with this many tasks.
[[nodiscard]] std::optional<std::vector<trace::OwnWaits>> parse_wait_shares(std::string_view text, std::uint32_t tasks);

}  // namespace amldist::step
