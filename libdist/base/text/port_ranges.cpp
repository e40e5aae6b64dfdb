#include "base/text/port_ranges.hpp"

#include <algorithm>
#include <cassert>

#include "base/text/text.hpp"

namespace amldist {

Result<PortRanges> PortRanges::parse(std::string_view text) {
  constexpr std::size_t longest = 64 * 1024;  // longest list that the kernel prints
  if (text.size() > longest) return Error{Errc::limit, "port range: the text is too long"};
  PortRanges out;
  for (const std::string_view piece : text::split(text, ',')) {
    const auto dash = piece.find('-');
    const auto low = text::to_number(piece.substr(0, dash), 65535);
    const auto high = dash == std::string_view::npos ? low : text::to_number(piece.substr(dash + 1), 65535);
    if (!low || !high || *low == 0 || *high < *low) {
      return Error{Errc::invalid_argument,
                   text::concat({"port range ", text::quote(piece), " is not LO-HI with 1 <= LO <= HI <= 65535"})};
    }
    out.ranges_.push_back({static_cast<std::uint16_t>(*low), static_cast<std::uint16_t>(*high)});
  }
  out.normalize();
  return out;
}

void PortRanges::normalize() {
  std::ranges::sort(ranges_, {}, &Range::low);
  std::vector<Range> merged;
  for (const Range& range : ranges_) {
    if (!merged.empty() && range.low <= static_cast<std::uint32_t>(merged.back().high) + 1) {
      merged.back().high = std::max(merged.back().high, range.high);
    } else {
      merged.push_back(range);
    }
  }
  ranges_ = std::move(merged);
}

std::string PortRanges::to_string() const {
  std::string out;
  for (const Range& range : ranges_) {
    if (!out.empty()) out += ',';
    out += std::to_string(range.low);
    if (range.high != range.low) out += text::concat({"-", std::to_string(range.high)});
  }
  return out;
}

PortRanges PortRanges::without(const PortRanges& taken) const {
  PortRanges out;
  for (const Range& range : ranges_) {
    std::uint32_t low = range.low;
    for (const Range& hole : taken.ranges_) {
      if (hole.high < low || hole.low > range.high) continue;
      if (hole.low > low)
        out.ranges_.push_back({static_cast<std::uint16_t>(low), static_cast<std::uint16_t>(hole.low - 1)});
      low = static_cast<std::uint32_t>(hole.high) + 1;
    }
    if (low <= range.high) out.ranges_.push_back({static_cast<std::uint16_t>(low), range.high});
  }
  return out;
}

std::uint32_t PortRanges::size() const noexcept {
  std::uint32_t size = 0;
  for (const Range& range : ranges_) size += static_cast<std::uint32_t>(range.high - range.low) + 1;
  return size;
}

bool PortRanges::contains(std::uint16_t port) const noexcept {
  return std::ranges::any_of(ranges_, [port](const Range& range) { return port >= range.low && port <= range.high; });
}

std::uint16_t PortRanges::at(std::uint32_t index) const noexcept {
  for (const Range& range : ranges_) {
    const std::uint32_t count = static_cast<std::uint32_t>(range.high - range.low) + 1;
    if (index < count) return static_cast<std::uint16_t>(range.low + index);
    index -= count;
  }
  assert(false);
  return 0;
}

PortRanges default_port_range() { return PortRanges::parse("20000-29999").value(); }

}  // namespace amldist
