#include "aml_dist/layout.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <limits>
#include <unordered_map>

#include "core/text.hpp"

namespace amldist::tools {
namespace {

using text::concat;
using text::quote;

Error invalid(std::string message) { return {Errc::invalid_argument, std::move(message)}; }

/// "2" on four nodes means 2(x4), as --ntasks-per-node does; otherwise the node counts must agree.
Result<std::vector<TasksRun>> tasks_for(const std::string& text, std::uint32_t nodes) {
  auto runs = parse_tasks_per_node(text);
  if (!runs) return runs.error();
  if (runs->size() == 1 && runs->front().nodes == 1) runs->front().nodes = nodes;
  std::uint64_t counted = 0;
  for (const TasksRun& run : *runs) counted += run.nodes;
  if (counted == nodes) return runs;
  return Error{Errc::mismatch, concat({"--tasks-per-node ", quote(text), " speaks of ", text::count(counted, "node"),
                                       " but --nodelist names ", std::to_string(nodes)})};
}

std::uint32_t sum_of_tasks(const std::vector<TasksRun>& runs) {
  std::uint32_t tasks = 0;
  for (const TasksRun& run : runs) tasks += run.nodes * run.tasks;
  return tasks;
}

Result<std::vector<std::string>> read_hostfile(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Error{Errc::not_found, concat({"--hostfile ", quote(path), " cannot be read"})};
  std::vector<std::string> hosts;
  for (std::string word; file >> word;) {
    auto list = Hostlist::parse(word);
    if (!list) return Error{Errc::invalid_argument, concat({"--hostfile ", quote(path), ": ", list.error().message})};
    std::ranges::move(list->expand(), std::back_inserter(hosts));
    if (hosts.size() > most_tasks)
      return Error{Errc::limit, concat({"--hostfile ", quote(path), " has too many lines"})};
  }
  if (hosts.empty()) return invalid(concat({"--hostfile ", quote(path), " names no host"}));
  return hosts;
}

/// Rank i runs on line i. Node numbers follow the node list, or without one the order of first mention.
Result<Placement> from_hostfile(const LayoutOptions& options) {
  const auto host_of_rank = read_hostfile(options.hostfile);
  if (!host_of_rank) return host_of_rank.error();
  std::vector<std::string> nodes;
  if (!options.nodelist.empty()) {
    const auto list = Hostlist::parse(options.nodelist);
    if (!list) return list.error();
    nodes = list->expand();
  }
  const bool closed = !nodes.empty();
  std::unordered_map<std::string, std::uint32_t> index;
  for (const std::string& node : nodes) index.emplace(node, static_cast<std::uint32_t>(index.size()));
  std::vector<std::uint32_t> node_of_rank;
  for (const std::string& host : *host_of_rank) {
    const auto [found, added] = index.emplace(host, static_cast<std::uint32_t>(index.size()));
    if (added && closed) return invalid(concat({"--hostfile names ", quote(host), ", which --nodelist does not"}));
    if (added) nodes.push_back(host);
    node_of_rank.push_back(found->second);
  }
  auto hosts = Hostlist::parse(text::join(std::vector<std::string_view>(nodes.begin(), nodes.end()), ","));
  if (!hosts) return hosts.error();
  auto map = TaskMap::from_nodes_of_ranks(node_of_rank, static_cast<std::uint32_t>(nodes.size()));
  if (!map) return map.error();
  return Placement{std::move(*hosts), std::move(*map), Provenance::given, concat({"--hostfile ", options.hostfile})};
}

Result<Placement> from_counts(const LayoutOptions& options, Hostlist hosts) {
  const auto nodes = static_cast<std::uint32_t>(hosts.size());
  const auto runs = tasks_for(options.tasks_per_node, nodes);
  if (!runs) return runs.error();
  const std::uint32_t tasks = sum_of_tasks(*runs);
  if (!options.mapping.empty()) {
    auto map = TaskMap::parse(options.mapping, tasks, nodes);
    if (!map) return map.error();
    return Placement{std::move(hosts), std::move(*map), Provenance::given, "--mapping"};
  }
  const auto distribution = parse_distribution(options.distribution, std::nullopt, tasks, nodes);
  if (!distribution) return distribution.error();
  if (distribution->kind == Distribution::Kind::arbitrary) {
    return invalid("--distribution arbitrary needs --hostfile FILE, which says where each rank runs");
  }
  auto map = TaskMap::from_tasks_per_node(*runs, *distribution);
  if (!map) return map.error();
  return Placement{std::move(hosts), std::move(*map), Provenance::given,
                   options.distribution.empty() ? "Slurm's default distribution" : options.distribution};
}

}  // namespace

Result<Placement> make_placement(const LayoutOptions& options) {
  if (!options.hostfile.empty()) return from_hostfile(options);
  if (options.nodelist.empty()) return invalid("--nodelist LIST is missing: the step's nodes, such as 'node[1-4]'");
  if (options.tasks_per_node.empty()) return invalid("--tasks-per-node SPEC is missing: such as 2 or '2(x3),1'");
  auto hosts = Hostlist::parse(options.nodelist);
  if (!hosts) return hosts.error();
  return from_counts(options, std::move(*hosts));
}

Result<Placement> placement_of_this_step(const EnvironmentReader& environment) {
  LayoutOptions options;
  const std::pair<const char*, std::string*> facts[] = {{"SLURM_STEP_NODELIST", &options.nodelist},
                                                        {"SLURM_STEP_TASKS_PER_NODE", &options.tasks_per_node}};
  for (const auto& [name, target] : facts) {
    auto value = environment(name);
    if (!value) {
      return Error{Errc::unavailable,
                   concat({name, " is not set: give --nodelist and --tasks-per-node, or run this inside srun"})};
    }
    *target = std::move(*value);
  }
  options.distribution = environment("SLURM_DISTRIBUTION").value_or("");
  return make_placement(options);
}

}  // namespace amldist::tools
