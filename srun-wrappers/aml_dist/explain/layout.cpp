#include "aml_dist/explain/layout.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "base/text/text.hpp"
#include "launch/placement/components.hpp"

namespace amldist::tools {
namespace {

using text::concat;
using text::quote;

constexpr std::size_t most_components = 128;  // MAX_HET_JOB_COMPS in Slurm

Error invalid(std::string message) { return {Errc::invalid_argument, std::move(message)}; }

/// "2" on four nodes means 2(x4), as --ntasks-per-node does; otherwise the node counts must agree.
Result<std::vector<TasksRun>> tasks_for(const std::string& text, std::uint32_t nodes) {
  auto runs = parse_tasks_per_node(text);
  if (!runs) return runs.error();
  if (runs->size() == 1 && runs->front().nodes == 1) runs->front().nodes = nodes;
  std::uint64_t counted = 0;
  std::uint64_t tasks = 0;
  for (const TasksRun& run : *runs) {
    counted += run.nodes;
    tasks += std::uint64_t{run.nodes} * run.tasks;
  }
  if (tasks > most_tasks) return Error{Errc::limit, concat({"--tasks-per-node ", quote(text), ": too many tasks"})};
  if (counted == nodes) return runs;
  return Error{Errc::mismatch, concat({"--tasks-per-node ", quote(text), " lists ", text::count(counted, "node"),
                                       " but --nodelist names ", std::to_string(nodes)})};
}

std::uint32_t sum_of_tasks(const std::vector<TasksRun>& runs) {
  std::uint32_t tasks = 0;
  for (const TasksRun& run : runs) tasks += run.nodes * run.tasks;
  return tasks;
}

/// The text of a file, or of a pipe; nullopt if it cannot be read or is too long.
std::optional<std::string> read_bounded(const std::string& path) {
  constexpr std::size_t longest = std::size_t{64} << 20U;
  std::ifstream file(path);
  std::string text;
  std::array<char, 65536> buffer{};
  while (file && text.size() <= longest) {
    file.read(buffer.data(), buffer.size());
    text.append(buffer.data(), static_cast<std::size_t>(file.gcount()));
  }
  return file.eof() ? std::optional(std::move(text)) : std::nullopt;
}

constexpr std::uint64_t most_ranks = 1ULL << 22U;  // in a host file, which has a line for each

/// One line as Slurm reads it: "node1,node[3-4]", "node1*4" for four ranks; a '#' begins a comment.
Result<void> add_hosts(std::string_view line, std::vector<std::string>& hosts) {
  std::string names(line.substr(0, line.find('#')));
  std::ranges::replace_if(
      names, [](char c) { return c == '\t' || c == '\r'; }, ' ');
  for (const std::string_view word : text::split(names, ' ')) {
    if (word.empty()) continue;
    const auto star = word.rfind('*');
    const auto times = star == word.npos ? 1 : text::to_number(word.substr(star + 1), most_ranks).value_or(0);
    const auto list = Hostlist::parse(times > 0 ? word.substr(0, star) : word);
    if (!list) return list.error();
    const auto expanded = list->expand();
    if (hosts.size() + expanded.size() * times > most_ranks) return Error{Errc::limit, "too many ranks"};
    for (const std::string& host : expanded) hosts.insert(hosts.end(), times, host);
  }
  return {};
}

Result<std::vector<std::string>> read_hostfile(const std::string& path) {
  const auto content = read_bounded(path);
  if (!content) return Error{Errc::not_found, concat({"--hostfile ", quote(path), " cannot be read"})};
  std::vector<std::string> hosts;
  for (const std::string_view line : text::split(*content, '\n')) {
    if (auto status = add_hosts(line, hosts); !status) {
      return Error{status.error().code, concat({"--hostfile ", quote(path), ": ", status.error().message})};
    }
  }
  if (hosts.empty()) return invalid(concat({"--hostfile ", quote(path), " names no host"}));
  return hosts;
}

/// Nodes of a list, each named once: Slurm runs a node's tasks together, so a repeated name is a mistake.
Result<Hostlist> read_nodelist(const std::string& text) {
  auto hosts = Hostlist::parse(text);
  if (!hosts) return Error{hosts.error().code, concat({"--nodelist: ", hosts.error().message})};
  std::unordered_set<std::string> seen;
  for (std::string& name : hosts->expand()) {
    if (const auto [at, added] = seen.insert(std::move(name)); !added) {
      return invalid(concat({"--nodelist ", quote(text), " names ", quote(*at), " twice"}));
    }
  }
  return hosts;
}

Result<void> check_counts_of_hosts(const LayoutOptions& options, const launch::Placement& placement) {
  const auto runs = tasks_for(options.tasks_per_node, placement.map.nodes());
  if (!runs) return runs.error();
  std::uint32_t node = 0;
  for (const TasksRun& run : *runs) {
    for (const std::uint32_t end = node + run.nodes; node < end; ++node) {
      if (placement.map.tasks_on(node) == run.tasks) continue;
      return Error{Errc::mismatch,
                   concat({"--tasks-per-node says ", text::count(run.tasks, "task"), " for ", placement.hosts.at(node),
                           " but --hostfile names it ", std::to_string(placement.map.tasks_on(node)), " times"})};
    }
  }
  return {};
}

/// Rank i runs on line i. Node numbers follow the node list, or else the order of first mention.
Result<launch::Placement> from_hostfile(const LayoutOptions& options) {
  const auto host_of_rank = read_hostfile(options.hostfile);
  if (!host_of_rank) return host_of_rank.error();
  std::vector<std::string> nodes;
  if (!options.nodelist.empty()) {
    const auto list = read_nodelist(options.nodelist);
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
  auto hosts = Hostlist::from_names(nodes);
  if (!hosts) return hosts.error();
  auto map = launch::TaskMap::from_nodes_of_ranks(node_of_rank, static_cast<std::uint32_t>(nodes.size()));
  if (!map) return map.error();
  launch::Placement placement{std::move(*hosts), std::move(*map), launch::Provenance::given, "host file"};
  if (options.tasks_per_node.empty()) return placement;
  if (auto status = check_counts_of_hosts(options, placement); !status) return status.error();
  return placement;
}

/// The rule as shown in the caption: "cyclic", or "block, Slurm's default".
std::string name_of(launch::Distribution distribution, const std::string& asked) {
  if (!asked.empty()) return asked;
  const bool block = distribution.kind == launch::Distribution::Kind::block;
  return concat({block ? "block" : "cyclic", ", Slurm's default"});
}

Result<launch::Placement> from_counts(const LayoutOptions& options, Hostlist hosts) {
  const auto nodes = static_cast<std::uint32_t>(hosts.size());
  const auto runs = tasks_for(options.tasks_per_node, nodes);
  if (!runs) return runs.error();
  const std::uint32_t tasks = sum_of_tasks(*runs);
  if (!options.mapping.empty()) {
    auto map = launch::TaskMap::parse(options.mapping, tasks, nodes);
    if (!map) return map.error();
    return launch::Placement{std::move(hosts), std::move(*map), launch::Provenance::given, "--mapping"};
  }
  const auto distribution = launch::parse_distribution(options.distribution, std::nullopt, tasks, nodes);
  if (!distribution) return distribution.error();
  if (distribution->kind == launch::Distribution::Kind::arbitrary) {
    return invalid("--distribution arbitrary needs --hostfile FILE, which says where each rank runs");
  }
  auto map = launch::TaskMap::from_tasks_per_node(*runs, *distribution);
  if (!map) return map.error();
  return launch::Placement{std::move(hosts), std::move(*map), launch::Provenance::given,
                           name_of(*distribution, options.distribution)};
}

Result<launch::Placement> one_component(const LayoutOptions& options) {
  // Slurm's own name for a host file.
  const bool says_hostfile = options.distribution == "arbitrary" && !options.hostfile.empty();
  const int rules = static_cast<int>(!options.distribution.empty() && !says_hostfile) +
                    static_cast<int>(!options.mapping.empty()) + static_cast<int>(!options.hostfile.empty());
  if (rules > 1) return invalid("--distribution, --mapping and --hostfile cannot be combined: give one of them");
  if (!options.hostfile.empty()) return from_hostfile(options);
  if (options.nodelist.empty()) return invalid("--nodelist LIST is missing: the step's nodes, such as 'node[1-4]'");
  if (options.tasks_per_node.empty()) return invalid("--tasks-per-node SPEC is missing: such as 2 or '2(x3),1'");
  auto hosts = read_nodelist(options.nodelist);
  if (!hosts) return hosts.error();
  return from_counts(options, std::move(*hosts));
}

/// "a : b" -> {"a", "b"}; blanks round a piece are dropped, and an empty piece means "not given here".
std::vector<std::string> split_components(std::string_view text) {
  std::vector<std::string> pieces;
  for (;;) {
    const auto colon = text.find(" : ");
    pieces.emplace_back(text::trim(text.substr(0, colon)));
    if (colon == std::string_view::npos) return pieces;
    text.remove_prefix(colon + 3);
  }
}

struct Field {
  std::string LayoutOptions::*member;
  std::string_view option;
};

constexpr std::array<Field, 5> fields = {{{&LayoutOptions::nodelist, "--nodelist"},
                                          {&LayoutOptions::tasks_per_node, "--tasks-per-node"},
                                          {&LayoutOptions::distribution, "--distribution"},
                                          {&LayoutOptions::mapping, "--mapping"},
                                          {&LayoutOptions::hostfile, "--hostfile"}}};

/// The options of each component; a value without " : " counts for all of them.
Result<std::vector<LayoutOptions>> components_of(const LayoutOptions& options) {
  std::array<std::vector<std::string>, fields.size()> pieces;
  std::size_t count = 1;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    pieces[i] = split_components(options.*fields[i].member);
    count = std::max(count, pieces[i].size());
  }
  if (count > most_components) return invalid("more than 128 components: Slurm accepts no more");
  std::vector<LayoutOptions> components(count);
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (pieces[i].size() != 1 && pieces[i].size() != count) {
      return invalid(concat({fields[i].option, " describes ", text::count(pieces[i].size(), "component"),
                             " but another option ", std::to_string(count), ": give one value for all, or one each"}));
    }
    for (std::size_t c = 0; c < count; ++c) components[c].*fields[i].member = pieces[i][pieces[i].size() == 1 ? 0 : c];
  }
  return components;
}

}  // namespace

bool describes_a_layout(const LayoutOptions& layout) {
  return !(layout.nodelist.empty() && layout.tasks_per_node.empty() && layout.distribution.empty() &&
           layout.mapping.empty() && layout.hostfile.empty());
}

Result<launch::Placement> make_placement(const LayoutOptions& options) {
  const auto components = components_of(options);
  if (!components) return components.error();
  if (components->size() == 1) return one_component(components->front());
  launch::Components step;
  std::vector<std::string> sources;
  for (const LayoutOptions& component : *components) {
    const auto placement = one_component(component);
    auto joined = placement ? step.join(placement->hosts, placement->map) : placement.error();
    if (!joined) {
      return Error{joined.error().code,
                   concat({"component ", std::to_string(sources.size()), ": ", joined.error().message})};
    }
    sources.push_back(placement->source);
  }
  return std::move(step).placement(launch::Provenance::given,
                                   text::join(std::vector<std::string_view>(sources.begin(), sources.end()), " : "));
}

}  // namespace amldist::tools
