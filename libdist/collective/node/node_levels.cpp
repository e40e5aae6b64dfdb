#include "collective/node/node_levels.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "base/text/text.hpp"
#include "collective/tuning/algorithm_choice.hpp"

namespace amldist::collective {
namespace {

using Groups = std::vector<std::vector<std::uint32_t>>;
using Part = int ProcessorPlace::*;

bool is_known(std::span<const NodePlace> places, Part part) {
  return std::ranges::all_of(places, [part](const NodePlace& place) { return place.processors.*part >= 0; });
}

/// The ranks by what `part` says of them, in the order of their first ranks.
Groups divide(std::span<const NodePlace> places, const std::vector<std::uint32_t>& ranks, Part part) {
  std::map<int, std::size_t> known;
  Groups groups;
  for (const std::uint32_t rank : ranks) {
    const auto [found, is_new] = known.try_emplace(places[rank].processors.*part, groups.size());
    if (is_new) groups.emplace_back();
    groups[found->second].push_back(rank);
  }
  return groups;
}

std::vector<std::uint32_t> leaders_of(const Groups& groups) {
  std::vector<std::uint32_t> leaders;
  leaders.reserve(groups.size());
  for (const auto& group : groups) leaders.push_back(group.front());
  return leaders;
}

/// The first of these that is known of all ranks.
struct Kind {
  Part part;
  const char* name;
};
constexpr Kind kinds[] = {{&ProcessorPlace::cache, "cache domain"},
                          {&ProcessorPlace::memory, "NUMA node"},
                          {&ProcessorPlace::socket, "socket"}};

/// Between the domains and the node: the sockets, or where there is one, the NUMA nodes. Empty: neither.
Groups middle_groups(std::span<const NodePlace> places, const std::vector<std::uint32_t>& leaders) {
  for (const Part part : {&ProcessorPlace::socket, &ProcessorPlace::memory}) {
    if (!is_known(places, part)) continue;
    Groups groups = divide(places, leaders, part);
    if (groups.size() > 1 && groups.size() < leaders.size()) return groups;
  }
  return {};
}

}  // namespace

NodeDivision divide_node(std::span<const NodePlace> places, bool oversubscribed) {
  const auto kind = std::ranges::find_if(kinds, [&](const Kind& each) { return is_known(places, each.part); });
  if (kind == std::end(kinds)) return {{}, "cache domains unknown"};
  std::vector<std::uint32_t> all(places.size());
  std::iota(all.begin(), all.end(), 0U);
  Groups domains = divide(places, all, kind->part);
  NodeDivision out = {{}, text::count(domains.size(), kind->name)};
  const bool is_given = std::ranges::all_of(places, &NodePlace::is_given);
  const bool is_faster = !oversubscribed && tuning::are_leaders_faster(places.size(), domains.size());
  const bool is_possible = domains.size() > 1 && domains.size() < places.size();
  if (!is_possible || !(is_given || is_faster)) return out;
  std::vector<std::uint32_t> leaders = leaders_of(domains);
  Groups middle = middle_groups(places, leaders);
  out.levels.push_back(std::move(domains));
  out.text += ", leaders";
  if (!middle.empty() && (is_given || tuning::are_socket_leaders_faster(leaders.size(), middle.size()))) {
    leaders = leaders_of(middle);
    out.text += text::concat({" of ", text::count(middle.size(), "group")});
    out.levels.push_back(std::move(middle));
  }
  out.levels.push_back({std::move(leaders)});
  return out;
}

}  // namespace amldist::collective
