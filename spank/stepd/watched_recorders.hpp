// The recorders of a node's ranks, as the hang watch reads them in a child with the user's rights.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "spank/stepd/hang_watch.hpp"
#include "trace/record/record_reader.hpp"

namespace amldist::spank {

/// The most ranks of a node that are watched where only their recorders name them.
inline constexpr std::size_t most_named_ranks = 4096;

/// The ranks of this node's recorders, ascending.
[[nodiscard]] std::vector<std::uint32_t> named_ranks(const WatchedNode& node);

/// The recording of a rank by a source ("", ".mpi" and so on); nullopt if this step has no such recording.
[[nodiscard]] std::optional<trace::Recording> recording_of(const WatchedNode& node, std::uint32_t rank,
                                                           std::string_view source);

/// Whether a rank is a task of this node that has ended with status 0.
[[nodiscard]] bool has_exited(const WatchedNode& node, std::uint32_t rank);

/// Whether there is one; its calls are not read.
[[nodiscard]] bool has_recorder(const WatchedNode& node, std::uint32_t rank, std::string_view source);

}  // namespace amldist::spank
