// The order in which people number things: mlx5_2 before mlx5_10.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace amldist {

/// Compares as text, except that runs of digits are compared by value, whatever their length; leading zeros are
/// ignored. Slurm orders the nodes of a job in this way.
[[nodiscard]] constexpr bool natural_less(std::string_view a, std::string_view b) noexcept {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto take_number = [&](std::string_view& text) {
    std::size_t end = 0;
    while (end < text.size() && is_digit(text[end])) ++end;
    const std::string_view number = text.substr(0, end);
    text.remove_prefix(end);
    return number.substr(std::min(number.find_first_not_of('0'), number.size()));
  };
  while (!a.empty() && !b.empty()) {
    if (is_digit(a.front()) && is_digit(b.front())) {
      const std::string_view left = take_number(a);
      const std::string_view right = take_number(b);
      if (left.size() != right.size()) return left.size() < right.size();
      if (left != right) return left < right;
    } else if (a.front() != b.front()) {
      return a.front() < b.front();
    } else {
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
  }
  return a.size() < b.size();
}

}  // namespace amldist
