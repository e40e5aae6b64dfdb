#include "collective/communicator/split_requests.hpp"

#include <algorithm>
#include <charconv>

#include "base/text/text.hpp"

namespace amldist::collective {

std::string to_string(const SplitRequest& request) {
  return text::concat({std::to_string(request.color), " ", std::to_string(request.key)});
}

SplitRequest parse_split_request(std::string_view text) {
  SplitRequest request;
  const char* const end = text.data() + text.size();
  const char* const space = std::from_chars(text.data(), end, request.color).ptr;
  if (space != end) std::from_chars(space + 1, end, request.key);
  return request;
}

std::vector<std::uint32_t> ranks_of_color(const std::vector<SplitRequest>& requests, int color) {
  std::vector<std::uint32_t> ranks;
  for (std::uint32_t rank = 0; rank < requests.size(); ++rank) {
    if (requests[rank].color == color) ranks.push_back(rank);
  }
  std::ranges::stable_sort(ranks, {}, [&](std::uint32_t rank) { return requests[rank].key; });
  return ranks;
}

std::uint64_t split_id(std::uint64_t parent, std::uint64_t split, int color) {
  std::uint64_t id = parent;
  for (const std::uint64_t part : {split, static_cast<std::uint64_t>(static_cast<std::uint32_t>(color))}) {
    id = (id ^ (part + 1)) * 0x9e3779b97f4a7c15ULL;
    id ^= id >> 31;
  }
  return id;
}

std::uint64_t shrink_id(std::uint64_t parent, std::uint64_t round) {
  return split_id(parent, round, -1);  // split() never uses a negative colour for a number
}

}  // namespace amldist::collective
