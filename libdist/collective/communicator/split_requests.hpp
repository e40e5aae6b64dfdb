// The arguments of all ranks of a communicator in a split.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace amldist::collective {

/// One rank's arguments of a split.
struct SplitRequest {
  int color = 0;
  int key = 0;
};

/// Its form on the wire: "COLOR KEY".
[[nodiscard]] std::string to_string(const SplitRequest& request);
[[nodiscard]] SplitRequest parse_split_request(std::string_view text);

/// The ranks that asked for `color`, ordered by key and then by rank. `requests` by rank.
[[nodiscard]] std::vector<std::uint32_t> ranks_of_color(const std::vector<SplitRequest>& requests, int color);

/// The number of the new communicator: the same on its ranks, different for each colour and each split of `parent`.
/// `split`: 1 for the first split of the parent.
[[nodiscard]] std::uint64_t split_id(std::uint64_t parent, std::uint64_t split, int color);

/// The same for the remaining ranks of `parent` after a loss. `round`: of the agreement on the remaining ranks.
[[nodiscard]] std::uint64_t shrink_id(std::uint64_t parent, std::uint64_t round);

}  // namespace amldist::collective
