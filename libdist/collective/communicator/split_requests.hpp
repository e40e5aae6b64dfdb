// What the ranks of a communicator ask of a split, as it travels between them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace amldist::collective {

[[nodiscard]] std::string split_request_text(int color, int key);

/// The ranks that asked for `color`, in the order of their keys and, of equal ones, of the ranks. `requests` by rank,
/// each written by split_request_text().
[[nodiscard]] std::vector<std::uint32_t> ranks_of_color(const std::vector<std::string>& requests, int color);

}  // namespace amldist::collective
