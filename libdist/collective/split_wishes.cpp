#include "collective/split_wishes.hpp"

#include <algorithm>
#include <charconv>

#include "core/text.hpp"

namespace amldist::collective {

using text::concat;

std::string wish_text(int color, int key) { return concat({std::to_string(color), " ", std::to_string(key)}); }

std::vector<std::uint32_t> ranks_of_color(const std::vector<std::string>& wishes, int color) {
  struct Wish {
    int key;
    std::uint32_t rank;
  };
  std::vector<Wish> chosen;
  for (std::uint32_t r = 0; r < wishes.size(); ++r) {
    const std::string& wish = wishes[r];
    const auto space = wish.find(' ');
    int their_color = 0;
    Wish their = {0, r};
    std::from_chars(wish.data(), wish.data() + space, their_color);
    std::from_chars(wish.data() + space + 1, wish.data() + wish.size(), their.key);
    if (their_color == color) chosen.push_back(their);
  }
  std::ranges::stable_sort(chosen, {}, &Wish::key);
  std::vector<std::uint32_t> ranks;
  for (const Wish& wish : chosen) ranks.push_back(wish.rank);
  return ranks;
}

}  // namespace amldist::collective
