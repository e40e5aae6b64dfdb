#include "collective/communicator/split_requests.hpp"

#include <algorithm>
#include <charconv>

#include "core/text.hpp"

namespace amldist::collective {

using text::concat;

std::string split_request_text(int color, int key) { return concat({std::to_string(color), " ", std::to_string(key)}); }

std::vector<std::uint32_t> ranks_of_color(const std::vector<std::string>& requests, int color) {
  struct SplitRequest {
    int key;
    std::uint32_t rank;
  };
  std::vector<SplitRequest> chosen;
  for (std::uint32_t r = 0; r < requests.size(); ++r) {
    const std::string& request = requests[r];
    const auto space = request.find(' ');
    int their_color = 0;
    SplitRequest their = {0, r};
    std::from_chars(request.data(), request.data() + space, their_color);
    std::from_chars(request.data() + space + 1, request.data() + request.size(), their.key);
    if (their_color == color) chosen.push_back(their);
  }
  std::ranges::stable_sort(chosen, {}, &SplitRequest::key);
  std::vector<std::uint32_t> ranks;
  for (const SplitRequest& request : chosen) ranks.push_back(request.rank);
  return ranks;
}

}  // namespace amldist::collective
