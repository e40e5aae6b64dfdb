#include "launch/placement/network_topology.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <optional>
#include <utility>

#include "base/os/child_process.hpp"
#include "base/text/hostlist.hpp"
#include "base/text/text.hpp"

namespace amldist::launch {
namespace {

using text::concat;

/// Slurm's trees have a few levels.
constexpr std::uint64_t most_levels = 16;

/// The value behind "NAME=" in a line of such pairs.
std::optional<std::string_view> value_in(std::string_view line, std::string_view name) {
  for (const std::string_view word : text::split(line, ' ')) {
    if (word.size() > name.size() && word.starts_with(name) && word[name.size()] == '=')
      return word.substr(name.size() + 1);
  }
  return std::nullopt;
}

/// nullopt: not a line about a switch or a block.
std::optional<std::uint64_t> level_of(std::string_view line) {
  if (line.starts_with("BlockName=")) return 0;
  if (line.starts_with("AggregatedBlock=")) return 1;
  if (!line.starts_with("SwitchName=")) return std::nullopt;
  return text::to_number(value_in(line, "Level").value_or(""), most_levels - 1);
}

}  // namespace

Result<NetworkTopology> NetworkTopology::parse(std::string_view text) {
  if (text.size() > longest_text) return Error{Errc::limit, "the network's topology is longer than 32 MiB"};
  NetworkTopology out;
  for (const std::string_view line : text::split(text, '\n')) {
    if (auto status = out.add(line); !status) return status.error();
    out.add_address(line);
  }
  if (out.switches_ == 0) return Error{Errc::unavailable, "Slurm knows no switches or blocks (scontrol show topology)"};
  return out;
}

Result<NetworkTopology> NetworkTopology::of_cluster() {
  constexpr std::chrono::seconds patience{10};
  const auto answer = output_of({.words = {"scontrol", "show", "topology"}}, Clock::now() + patience, longest_text);
  if (!answer) return Error{Errc::unavailable, concat({"scontrol show topology: ", answer.error().message})};
  if (answer->status != 0) return Error{Errc::unavailable, "scontrol show topology does not answer"};
  return parse(answer->text);
}

Result<void> NetworkTopology::add(std::string_view line) {
  const auto level = level_of(line);
  const auto nodes = value_in(line, "Nodes");
  if (!level || !nodes || *nodes == "(null)") return {};
  const auto hosts = Hostlist::parse(*nodes);
  if (!hosts) return hosts.error();
  for (std::string& host : hosts->expand()) {
    Path& path = paths_[std::move(host)];
    if (path.size() <= *level) path.resize(*level + 1, no_switch);
    path[*level] = switches_;
  }
  levels_ = std::max(levels_, static_cast<std::uint32_t>(*level + 1));
  ++switches_;
  return {};
}

/// The switches of "core.s0.node1" are "core.s0" on level 0 and "core" above.
void NetworkTopology::add_address(std::string_view line) {
  const auto blank = line.find(' ');
  const std::string_view host = line.substr(0, blank);
  std::string_view rest = blank == std::string_view::npos ? std::string_view() : line.substr(blank + 1);
  if (host.empty() || !rest.ends_with(concat({".", host}))) return;
  Path& path = paths_[std::string(host)];
  path.clear();
  for (auto dot = rest.rfind('.'); dot != std::string_view::npos && path.size() < most_levels; dot = rest.rfind('.')) {
    rest = rest.substr(0, dot);
    const auto [known, is_new] = of_address_.try_emplace(std::string(rest), switches_);
    if (is_new) ++switches_;
    path.push_back(known->second);
  }
  levels_ = std::max(levels_, static_cast<std::uint32_t>(path.size()));
}

const NetworkTopology::Path& NetworkTopology::path_of(const std::string& host) const {
  const auto found = paths_.find(host);
  return found == paths_.end() ? nowhere_ : found->second;
}

std::uint32_t NetworkTopology::hops(const std::string& one, const std::string& other) const {
  if (one == other) return 0;
  const Path& a = path_of(one);
  const Path& b = path_of(other);
  std::uint32_t level = 0;
  while (level < std::min(a.size(), b.size()) && (a[level] != b[level] || a[level] == no_switch)) ++level;
  const bool is_joined = level < std::min(a.size(), b.size());
  return 2 * ((is_joined ? level : levels_) + 1);
}

std::uint64_t NetworkTopology::hops_along(std::span<const std::string> hosts) const {
  std::uint64_t sum = 0;
  for (std::size_t i = 1; i < hosts.size(); ++i) sum += hops(hosts[i - 1], hosts[i]);
  return sum;
}

std::vector<std::string> NetworkTopology::in_order(std::span<const std::string> hosts) const {
  // By level and switch: where its first host comes. A switch above comes first in a key.
  std::map<std::pair<std::size_t, std::uint32_t>, std::size_t> first;
  std::vector<std::pair<std::vector<std::size_t>, std::string>> keyed;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const Path& path = path_of(hosts[i]);
    std::vector<std::size_t> key;
    for (std::size_t level = levels_; level-- > 0;) {
      const std::uint32_t own = level < path.size() ? path[level] : no_switch;
      key.push_back(own == no_switch ? i : first.try_emplace({level, own}, i).first->second);
    }
    keyed.emplace_back(std::move(key), hosts[i]);
  }
  std::ranges::stable_sort(keyed, {}, [](const auto& each) -> const std::vector<std::size_t>& { return each.first; });
  std::vector<std::string> out;
  std::ranges::transform(keyed, std::back_inserter(out), [](auto& each) { return std::move(each.second); });
  return out;
}

std::vector<std::string> hosts_in_rank_order(const Placement& placement) {
  std::vector<std::string> hosts;
  for (std::uint32_t rank = 0; rank < placement.map.nodes(); ++rank)
    hosts.push_back(placement.hosts.at(placement.map.node_at(rank)));
  return hosts;
}

}  // namespace amldist::launch
