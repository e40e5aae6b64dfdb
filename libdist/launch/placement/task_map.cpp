#include "launch/placement/task_map.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "base/text/hostlist.hpp"
#include "base/text/text.hpp"

namespace amldist::launch {
namespace {

using text::concat;
using text::quote;

Error mapping_error(std::string_view what, std::string_view piece) {
  return {Errc::invalid_argument, concat({"process mapping: ", what, " in ", quote(piece)})};
}

struct Triple {
  std::uint32_t first_node;
  std::uint32_t nodes;
  std::uint32_t tasks;
};

Result<Triple> parse_triple(std::string_view inside) {
  const auto fields = text::split(inside, ',');
  if (fields.size() != 3) return mapping_error("expected (first,nodes,tasks)", inside);
  std::array<std::uint32_t, 3> numbers{};
  for (std::size_t i = 0; i < 3; ++i) {
    const auto number = text::to_number(text::trim(fields[i]), Hostlist::most_hosts);
    if (!number) return mapping_error("not a number", fields[i]);
    numbers[i] = static_cast<std::uint32_t>(*number);
  }
  if (numbers[1] == 0 || numbers[2] == 0) return mapping_error("zero nodes or tasks", inside);
  return Triple{numbers[0], numbers[1], numbers[2]};
}

/// "(vector,(0,4,2),(4,1,1))" -> triples.
Result<std::vector<Triple>> parse_vector(std::string_view text) {
  constexpr std::string_view head = "(vector,";
  if (!text.starts_with(head) || !text.ends_with("))")) return mapping_error("expected (vector,(...))", text);
  std::string_view rest = text.substr(head.size(), text.size() - head.size() - 1);
  std::vector<Triple> triples;
  while (!rest.empty()) {
    const auto close = rest.find(')');
    if (rest.front() != '(' || close == std::string_view::npos) return mapping_error("expected '(...)'", rest);
    const auto triple = parse_triple(rest.substr(1, close - 1));
    if (!triple) return triple.error();
    triples.push_back(*triple);
    rest.remove_prefix(close + 1);
    if (rest.empty()) break;
    if (rest.front() != ',' || rest.size() == 1) return mapping_error("expected ',' between blocks", rest);
    rest.remove_prefix(1);
  }
  return triples;
}

Error too_many_blocks(std::string_view what) {
  return {Errc::limit, concat({what, " expands to more than 2^20 blocks"})};
}

/// Deals `round` tasks at a time to each node that still has room: 1 is cyclic, a larger number is plane.
/// Errors: limit, before it deals anything.
template <typename Append>
Result<void> deal_in_rounds(std::span<const TasksRun> tasks_per_node, std::uint32_t round, Append append) {
  std::uint32_t most = 0;
  for (const TasksRun& run : tasks_per_node) most = std::max(most, run.tasks);
  const std::uint64_t rounds = (std::uint64_t{most} + round - 1) / round;
  if (rounds * tasks_per_node.size() > TaskMap::most_blocks) return too_many_blocks("task map: the distribution");
  for (std::uint32_t dealt = 0; dealt < most; dealt += std::min(round, most - dealt)) {
    std::uint32_t node = 0;
    for (const TasksRun& run : tasks_per_node) {
      if (run.tasks > dealt) append(node, run.nodes, std::min(round, run.tasks - dealt));
      node += run.nodes;
    }
  }
  return {};
}

}  // namespace

Distribution default_distribution(std::uint64_t tasks, std::uint64_t nodes) noexcept {
  return {tasks > nodes ? Distribution::Kind::block : Distribution::Kind::cyclic, 0};
}

Result<Distribution> parse_distribution(std::string_view text, std::optional<std::uint32_t> plane_size,
                                        std::uint64_t tasks, std::uint64_t nodes) {
  const std::string lower = text::to_lower(text);
  const std::string_view word = std::string_view(lower).substr(0, lower.find_first_of(":,"));
  if (word.empty() || word == "*" || word == "unknown" || word == "pack" || word == "nopack") {
    return default_distribution(tasks, nodes);
  }
  if (word == "block") return Distribution{Distribution::Kind::block, 0};
  if (word == "cyclic") return Distribution{Distribution::Kind::cyclic, 0};
  if (word == "arbitrary") return Distribution{Distribution::Kind::arbitrary, 0};
  if (word == "plane" || word.starts_with("plane=")) {
    if (word != "plane") {
      const auto size = text::to_number(word.substr(6), most_tasks);
      plane_size = size ? std::optional(static_cast<std::uint32_t>(*size)) : std::nullopt;
    }
    if (!plane_size || *plane_size == 0) {
      return Error{Errc::invalid_argument, concat({"distribution ", quote(text), " lacks its plane size: plane=N"})};
    }
    return Distribution{Distribution::Kind::plane, *plane_size};
  }
  return Error{Errc::invalid_argument,
               concat({"unknown distribution ", quote(text), ": use block, cyclic, plane=N or arbitrary"})};
}

/// Equal placements must give equal blocks: tasks on the last node extend its block, and neighbouring blocks with equal
/// numbers are merged.
void TaskMap::append(std::uint32_t first_node, std::uint32_t nodes, std::uint32_t tasks) {
  const bool more_of_last_node =
      !blocks_.empty() && blocks_.back().first_node + blocks_.back().nodes == std::uint64_t{first_node} + 1;
  if (!more_of_last_node) {
    blocks_.push_back({size_, first_node, nodes, tasks});
    size_ += nodes * tasks;
    return join_last_blocks();
  }
  Block& last = blocks_.back();
  if (last.nodes > 1) {
    --last.nodes;
    const std::uint32_t before = last.tasks;
    blocks_.push_back({size_ - before, first_node, 1, before});
  }
  blocks_.back().tasks += tasks;
  size_ += tasks;
  join_last_blocks();
  if (nodes > 1) append(first_node + 1, nodes - 1, tasks);
}

void TaskMap::join_last_blocks() {
  if (blocks_.size() < 2) return;
  Block& before = blocks_[blocks_.size() - 2];
  const Block& last = blocks_.back();
  if (before.tasks != last.tasks || before.first_node + before.nodes != last.first_node) return;
  before.nodes += last.nodes;
  blocks_.pop_back();
}

Result<TaskMap> TaskMap::from_tasks_per_node(std::span<const TasksRun> tasks_per_node, Distribution distribution) {
  TaskMap map;
  std::uint32_t nodes = 0;
  for (const TasksRun& run : tasks_per_node) nodes += run.nodes;
  const auto append = [&map](std::uint32_t node, std::uint32_t count, std::uint32_t tasks) {
    map.append(node, count, tasks);
  };
  std::uint32_t round = std::numeric_limits<std::uint32_t>::max();  // block: all of a node's tasks at once
  if (distribution.kind == Distribution::Kind::arbitrary) {
    return Error{Errc::unavailable, "the task map of an arbitrary distribution cannot be derived from task counts"};
  }
  if (distribution.kind == Distribution::Kind::cyclic) round = 1;
  if (distribution.kind == Distribution::Kind::plane) round = std::max(1U, distribution.plane_size);
  if (auto status = deal_in_rounds(tasks_per_node, round, append); !status) return status.error();
  return std::move(map).finish(nodes);
}

Result<TaskMap> TaskMap::from_nodes_of_ranks(std::span<const std::uint32_t> node_of_rank, std::uint32_t nodes) {
  if (node_of_rank.size() > most_tasks || nodes > Hostlist::most_hosts) {
    return Error{Errc::limit, "task map: too many tasks or nodes"};
  }
  if (const auto outside = std::ranges::find_if(node_of_rank, [nodes](std::uint32_t node) { return node >= nodes; });
      outside != node_of_rank.end()) {
    return Error{Errc::mismatch, concat({"task map: a task is placed on node index ", std::to_string(*outside), " of ",
                                         text::count(nodes, "node")})};
  }
  TaskMap map;
  // Collects runs on one node; append() merges equal neighbours.
  for (std::size_t rank = 0; rank < node_of_rank.size();) {
    std::size_t end = rank + 1;
    while (end < node_of_rank.size() && node_of_rank[end] == node_of_rank[rank]) ++end;
    map.append(node_of_rank[rank], 1, static_cast<std::uint32_t>(end - rank));
    rank = end;
  }
  return std::move(map).finish(nodes);
}

Result<TaskMap> TaskMap::parse(std::string_view vector, std::uint32_t size, std::uint32_t nodes) {
  if (size > most_tasks || nodes > Hostlist::most_hosts || vector.size() > Hostlist::longest_text)
    return Error{Errc::limit, "process mapping: too long"};
  const auto triples = parse_vector(vector);
  if (!triples) return triples.error();
  TaskMap map;
  std::uint32_t appended = 0;  // blocks before equal neighbours are merged: the cost of reading
  while (map.size_ < size) {
    for (const Triple& triple : *triples) {
      const std::uint64_t tasks = static_cast<std::uint64_t>(triple.nodes) * triple.tasks;
      if (triple.first_node + triple.nodes > nodes || map.size_ + tasks > size) {
        return Error{Errc::mismatch, concat({"process mapping: ", quote(vector), " does not fit ",
                                             text::count(size, "task"), " on ", text::count(nodes, "node")})};
      }
      map.append(triple.first_node, triple.nodes, triple.tasks);
      if (++appended > most_blocks) {
        return too_many_blocks(concat({"process mapping: ", quote(vector)}));
      }
      if (map.size_ == size) break;
    }
  }
  return std::move(map).finish(nodes);
}

Result<TaskMap> TaskMap::finish(std::uint32_t nodes) && {
  nodes_ = nodes;
  std::uint32_t beyond = 0;
  for (const Block& block : blocks_) beyond = std::max(beyond, block.first_node + block.nodes);
  if (size_ == 0 || nodes == 0) return Error{Errc::invalid_argument, "task map: no task or no node"};
  if (beyond > nodes) {
    return Error{Errc::mismatch, concat({"task map: a task is placed on node index ", std::to_string(beyond - 1),
                                         " of ", text::count(nodes, "node")})};
  }
  if (auto status = count_tasks(); !status) return status.error();
  order_nodes();
  return std::move(*this);
}

Result<void> TaskMap::count_tasks() {
  const bool one_block = blocks_.size() == 1 && blocks_[0].nodes == nodes_;
  if (one_block) {  // the usual case: no need to visit every node
    fewest_ = most_ = blocks_[0].tasks;
    return {};
  }
  const auto tasks = counts();
  const auto [fewest, most] = std::ranges::minmax(tasks);
  if (fewest == 0) {
    return Error{Errc::mismatch, concat({"task map: one of the ", std::to_string(nodes_), " nodes has no task"})};
  }
  fewest_ = fewest;
  most_ = most;
  return {};
}

void TaskMap::order_nodes() {
  std::uint32_t seen = 0;
  bool in_own_order = true;
  for (const Block& block : blocks_) {
    if (block.first_node > seen) in_own_order = false;
    seen = std::max(seen, block.first_node + block.nodes);
  }
  if (in_own_order) return;
  constexpr std::uint32_t unseen = std::numeric_limits<std::uint32_t>::max();
  node_rank_.assign(nodes_, unseen);
  node_at_.reserve(nodes_);
  for (const Block& block : blocks_) {
    for (std::uint32_t node = block.first_node; node < block.first_node + block.nodes; ++node) {
      if (node_rank_[node] != unseen) continue;
      node_rank_[node] = static_cast<std::uint32_t>(node_at_.size());
      node_at_.push_back(node);
    }
  }
}

std::vector<std::uint32_t> TaskMap::counts() const {
  std::vector<std::uint32_t> counts(nodes_, 0);
  for (const Block& block : blocks_) {
    for (std::uint32_t node = block.first_node; node < block.first_node + block.nodes; ++node) {
      counts[node] += block.tasks;
    }
  }
  return counts;
}

std::string TaskMap::to_string() const {
  const bool repeats = std::ranges::all_of(blocks_, [this](const Block& block) {
    return block.first_node == blocks_[0].first_node && block.nodes == blocks_[0].nodes &&
           block.tasks == blocks_[0].tasks;
  });
  std::string out = "(vector";
  for (const Block& block : blocks_) {
    out += concat({",(", std::to_string(block.first_node), ",", std::to_string(block.nodes), ",",
                   std::to_string(block.tasks), ")"});
    if (repeats) break;
  }
  return out + ")";
}

std::uint32_t TaskMap::node_of(std::uint32_t rank) const noexcept {
  const auto after = std::ranges::upper_bound(blocks_, rank, {}, &Block::first_rank);
  const Block& block = *std::prev(after);
  return block.first_node + (rank - block.first_rank) / block.tasks;
}

std::uint32_t TaskMap::local_rank_of(std::uint32_t rank) const noexcept {
  const std::uint32_t node = node_of(rank);
  std::uint32_t before = 0;
  for (const Block& block : blocks_) {
    if (node < block.first_node || node >= block.first_node + block.nodes) continue;
    const std::uint32_t first_here = block.first_rank + (node - block.first_node) * block.tasks;
    if (rank < first_here + block.tasks) return before + (rank - first_here);
    before += block.tasks;
  }
  return before;  // not reached: the rank's own block returns
}

std::uint32_t TaskMap::tasks_on(std::uint32_t node) const noexcept {
  std::uint32_t tasks = 0;
  for (const Block& block : blocks_) {
    if (node >= block.first_node && node < block.first_node + block.nodes) tasks += block.tasks;
  }
  return tasks;
}

std::vector<std::uint32_t> TaskMap::ranks_on(std::uint32_t node) const {
  std::vector<std::uint32_t> ranks;
  for (const Block& block : blocks_) {
    if (node < block.first_node || node >= block.first_node + block.nodes) continue;
    const std::uint32_t first = block.first_rank + (node - block.first_node) * block.tasks;
    for (std::uint32_t i = 0; i < block.tasks; ++i) ranks.push_back(first + i);
  }
  return ranks;
}

std::uint32_t TaskMap::node_rank_of(std::uint32_t node) const noexcept {
  return node_rank_.empty() ? node : node_rank_[node];
}

std::uint32_t TaskMap::node_at(std::uint32_t node_rank) const noexcept {
  return node_at_.empty() ? node_rank : node_at_[node_rank];
}

}  // namespace amldist::launch
