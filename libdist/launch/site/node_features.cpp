#include "launch/site/node_features.hpp"

#include <algorithm>

#include "base/text/text.hpp"

namespace amldist::launch {
namespace {

using text::concat;

constexpr std::uint32_t most_nodes = 1U << 20;  // as many as a host list may name

}  // namespace

bool is_feature_name(std::string_view name) noexcept {
  constexpr std::size_t longest_name = 64;
  return !name.empty() && name.size() <= longest_name && std::ranges::all_of(name, [](char c) {
    return c > ' ' && c < 0x7f && std::string_view("+:,;=").find(c) == std::string_view::npos;
  });
}

void NodeFeatures::add(std::string_view feature, std::uint32_t node) {
  std::vector<Range>& ranges = nodes_of_[std::string(feature)];
  if (!ranges.empty() && ranges.back().high + 1 == node) ranges.back().high = node;
  else if (ranges.empty() || ranges.back().high < node) ranges.push_back({node, node});
}

bool NodeFeatures::on_any(std::string_view feature) const noexcept { return nodes_of_.contains(feature); }

bool NodeFeatures::on(std::string_view feature, std::uint32_t node) const noexcept {
  const auto found = nodes_of_.find(feature);
  return found != nodes_of_.end() && std::ranges::any_of(found->second, [node](const Range& range) {
           return range.low <= node && node <= range.high;
         });
}

std::string NodeFeatures::to_string() const {
  std::string out;
  for (const auto& [feature, ranges] : nodes_of_) {
    out += concat({out.empty() ? "" : "+", feature});
    for (const Range& range : ranges) {
      out += concat({&range == ranges.data() ? ":" : ",", std::to_string(range.low)});
      if (range.high != range.low) out += concat({"-", std::to_string(range.high)});
    }
  }
  return out;
}

bool NodeFeatures::parse_range(std::string_view text, std::vector<Range>& ranges) {
  const auto dash = text.find('-');
  const auto low = text::to_number(text.substr(0, dash), most_nodes);
  const auto high = dash == std::string_view::npos ? low : text::to_number(text.substr(dash + 1), most_nodes);
  const bool is_written_so = low && high && (dash == std::string_view::npos || *low < *high);
  if (!is_written_so || (!ranges.empty() && *low <= ranges.back().high + 1)) return false;
  ranges.push_back({static_cast<std::uint32_t>(*low), static_cast<std::uint32_t>(*high)});
  return true;
}

Result<NodeFeatures> NodeFeatures::parse(std::string_view text) {
  const Error malformed{Errc::invalid_argument, "the list of the nodes' features is malformed"};
  NodeFeatures features;
  for (const std::string_view entry : text::split(text, '+')) {
    const auto colon = std::min(entry.find(':'), entry.size());
    const std::string_view name = entry.substr(0, colon);
    const bool in_order = features.nodes_of_.empty() || features.nodes_of_.rbegin()->first < name;
    if (!is_feature_name(name) || colon == entry.size() || !in_order) return malformed;
    std::vector<Range>& ranges = features.nodes_of_[std::string(name)];
    for (const std::string_view range : text::split(entry.substr(colon + 1), ',')) {
      if (!parse_range(range, ranges)) return malformed;
    }
  }
  return features;
}

}  // namespace amldist::launch
