#include "launch/placement/components.hpp"

#include <unordered_set>
#include <utility>

#include "base/text/text.hpp"

namespace amldist::launch {

using text::concat;

Result<Hostlist> distinct_hosts(std::span<const Component> components) {
  std::vector<std::string> distinct;
  std::unordered_set<std::string> seen;
  std::size_t mentions = 0;
  for (const Component& component : components) {
    const auto hosts = Hostlist::parse(component.hosts);
    if (!hosts) return hosts;
    mentions += hosts->size();
    if (mentions > most_component_hosts) return Error{Errc::limit, "the components have too many nodes"};
    for (std::string& name : hosts->expand()) {
      if (seen.insert(name).second) distinct.push_back(std::move(name));
    }
  }
  return Hostlist::from_names(distinct);
}

Result<void> Components::join(const Hostlist& hosts, std::span<const std::uint32_t> node_of_rank) {
  if (names_.size() + hosts.size() > Hostlist::most_hosts || tasks() + node_of_rank.size() > most_tasks) {
    return Error{Errc::limit, "the components have too many tasks or nodes"};
  }
  std::vector<std::uint32_t> index_of_node;
  index_of_node.reserve(hosts.size());
  for (std::string& name : hosts.expand()) {
    const auto [found, added] = index_.emplace(name, static_cast<std::uint32_t>(names_.size()));
    if (added) names_.push_back(std::move(name));
    index_of_node.push_back(found->second);
  }
  for (const std::uint32_t node : node_of_rank) {
    if (node >= index_of_node.size()) {
      return Error{Errc::mismatch, concat({"a component places a task on node index ", std::to_string(node), " of ",
                                           text::count(hosts.size(), "node")})};
    }
    node_of_rank_.push_back(index_of_node[node]);
  }
  return {};
}

Result<void> Components::join(const Hostlist& hosts, const TaskMap& map) {
  std::vector<std::uint32_t> node_of_rank;
  node_of_rank.reserve(map.size());
  for (const TaskMap::Block& block : map.blocks()) {
    for (std::uint32_t node = 0; node < block.nodes; ++node) {
      node_of_rank.insert(node_of_rank.end(), block.tasks, block.first_node + node);
    }
  }
  return join(hosts, node_of_rank);
}

Result<Placement> Components::placement(Provenance provenance, std::string source) && {
  auto hosts = Hostlist::from_names(names_);
  if (!hosts) return hosts.error();
  auto map = TaskMap::from_nodes_of_ranks(node_of_rank_, static_cast<std::uint32_t>(names_.size()));
  if (!map) return map.error();
  return Placement{std::move(*hosts), std::move(*map), provenance, std::move(source), false};
}

}  // namespace amldist::launch
