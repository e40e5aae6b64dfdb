#include "aml_dist/keep/keep_policy.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/text/text.hpp"

namespace amldist::keep {
namespace {

using text::concat;

constexpr std::int64_t hour = 3600;
/// A start that ends sooner makes the next one wait.
constexpr std::int64_t short_start = 60;
constexpr std::int64_t longest_wait = 60;

bool was_of_use(const Start& start) { return start.advanced.value_or(start.ran >= hour); }

/// A preemption is nobody's failure, and an agreed stop none at all.
bool costs(const Start& start) { return !start.at_limit && start.cause != Cause::preempted; }

bool is_nodes_fault(const Start& start) {
  switch (start.cause) {
    case Cause::node_down:
    case Cause::node_unhealthy:
    case Cause::link:
    case Cause::plugin_missing:
    case Cause::launch_failed:
      return !start.blamed.empty();
    default:
      return false;
  }
}

/// The status of the rank that failed, or of srun, if it is in --no-restart-on.
/// Where a node has failed, only the status of a rank on it counts: srun's and other ranks' follow from that.
std::optional<int> chosen_status(const Limits& limits, const Start& start) {
  const bool is_on_blamed = std::ranges::find(start.blamed, start.node) != start.blamed.end();
  for (const auto& [status, counts] :
       {std::pair(start.rank_status, !is_nodes_fault(start) || is_on_blamed), {start.status, !is_nodes_fault(start)}}) {
    if (!counts) continue;
    if (std::ranges::find(limits.no_restart_on, status) != limits.no_restart_on.end()) return status;
  }
  return std::nullopt;
}

bool ends_at_once(const Start& start) {
  switch (start.cause) {
    case Cause::refused:
    case Cause::cancelled:
    case Cause::time_limit:
    case Cause::preempted:
      return true;
    default:
      return false;
  }
}

/// The last start and those before it that count with it.
std::span<const Start> related(std::span<const Start> history) {
  std::size_t first = history.size() - 1;
  while (first > 0 && !was_of_use(history[first])) --first;
  return history.subspan(first);
}

/// The program fails in the same way on another node too, or, where no node is known, for the third time.
bool is_programs_fault(std::span<const Start> starts) {
  const Start& last = starts.back();
  if (last.failure.empty()) return false;  // no program ran
  const auto same = [&](const Start& each) { return !is_nodes_fault(each) && each.failure == last.failure; };
  const bool elsewhere = std::ranges::any_of(starts, [&](const Start& each) {
    return same(each) && !each.node.empty() && !last.node.empty() && each.node != last.node;
  });
  constexpr std::ptrdiff_t without_node = 3;
  return elsewhere || (last.node.empty() && std::ranges::count_if(starts, same) >= without_node);
}

bool failed_there_before(std::span<const Start> starts) {
  const Start& last = starts.back();
  return !last.node.empty() && std::ranges::any_of(starts.first(starts.size() - 1), [&](const Start& each) {
    return !is_nodes_fault(each) && each.node == last.node;
  });
}

/// The last two starts that ended neither by a node's fault nor by a preemption, and of which it is known.
bool lacks_progress(std::span<const Start> history) {
  int fruitless = 0;
  for (auto each = history.rbegin(); each != history.rend() && fruitless < 2; ++each) {
    if (is_nodes_fault(*each) || each->cause == Cause::preempted) continue;
    if (!each->advanced) continue;
    if (*each->advanced) return false;
    ++fruitless;
  }
  return fruitless == 2;
}

/// Why there may be no further start; empty: there may.
std::string exhausted(const Limits& limits, std::span<const Start> history) {
  if (costly(history) > limits.retries) {
    return limits.retries == 0 ? "there are no retries (--retries=0)"
                               : concat({"all ", text::count(limits.retries, "restart"), " of --retries are used"});
  }
  const std::int64_t now = history.back().ended;
  const auto recent = std::ranges::count_if(history.first(history.size() - 1),
                                            [&](const Start& each) { return costs(each) && each.ended > now - hour; });
  if (limits.per_hour == 0 || recent < static_cast<std::ptrdiff_t>(limits.per_hour)) return {};
  return concat({"it was started again ", text::count(limits.per_hour, "time"),
                 " within the last hour, the most that --per-hour allows"});
}

std::chrono::seconds wait_after(std::span<const Start> history) {
  std::int64_t wait = 0;
  for (auto each = history.rbegin(); each != history.rend() && each->ran < short_start && wait < longest_wait; ++each)
    wait = wait == 0 ? 1 : 2 * wait;
  return std::chrono::seconds(std::min(wait, longest_wait));
}

Decision end(std::string sentence) { return {.sentence = std::move(sentence)}; }

/// Replaces nodes: by spares, by fewer nodes, or in the queue.
Decision replace(const Limits& limits, std::span<const Start> history, const Nodes& nodes,
                 std::vector<std::string> excluded, const std::string& why) {
  const std::size_t left = without(nodes, excluded).size();
  const std::string gone = names_of(excluded);
  Decision decision{.excluded = std::move(excluded), .wait = wait_after(history)};
  if (left == nodes.step.size()) {
    decision.action = Action::swap;
    decision.sentence = concat({why, ": a spare takes the place of ", gone});
  } else if (limits.min_nodes != 0 && left >= limits.min_nodes) {
    decision.action = Action::fewer;
    decision.sentence = concat({why, ", and no spare is left: it goes on with ", text::count(left, "node"),
                                " (--min-nodes=", std::to_string(limits.min_nodes), ")"});
  } else if (limits.requeue) {
    decision.action = Action::requeue;
    decision.sentence = concat({why, ", and no spare is left: the job goes back to the queue, without ", gone});
  } else {
    decision.sentence = concat({why, ", and no spare is left: give --spares, --min-nodes or --requeue"});
  }
  return decision;
}

Decision after_rank(const Limits& limits, std::span<const Start> history, const Nodes& nodes) {
  const Start& last = history.back();
  const auto starts = related(history);
  if (is_programs_fault(starts)) {
    return end(concat({"the program's own fault: it ended in the same way ",
                       last.node.empty() ? "three times" : "on other nodes too", ": ", last.evidence}));
  }
  if (lacks_progress(history))
    return end("no progress in two starts: what --progress or --checkpoints watches is as before");
  if (!failed_there_before(starts)) {
    return {.action = Action::restart,
            .wait = wait_after(history),
            .sentence = concat({last.evidence, ": again on the same nodes"})};
  }
  return replace(limits, history, nodes, {last.node},
                 concat({last.node, " is suspected, where a rank failed twice (", last.evidence, ")"}));
}

std::string said_of_nodes(const Start& last) {
  const std::string gone = names_of(last.blamed);
  return last.evidence.empty() ? concat({"the fault of ", gone, " (", to_string(last.cause), ")"}) : last.evidence;
}

}  // namespace

Decision decide(const Limits& limits, std::span<const Start> history, const Nodes& nodes) {
  const Start& last = history.back();
  if (last.cause == Cause::done && last.at_limit && limits.requeue_at_limit)
    return {.action = Action::requeue,
            .sentence = "the step has stopped before the time limit: the job goes back to the queue"};
  if (last.cause == Cause::done) return {};
  if (const auto status = chosen_status(limits, last))
    return end(concat({"not started again: status ", std::to_string(*status), " is in --no-restart-on"}));
  if (ends_at_once(last))
    return end(
        concat({"not started again: ", to_string(last.cause), last.evidence.empty() ? "" : ", ", last.evidence}));
  Decision decision = is_nodes_fault(last) ? replace(limits, history, nodes, last.blamed, said_of_nodes(last))
                                           : after_rank(limits, history, nodes);
  if (decision.action == Action::end) return decision;
  const std::string reason = exhausted(limits, history);
  return reason.empty()
             ? decision
             : end(concat({last.evidence, last.evidence.empty() ? "" : "; ", "not started again: ", reason}));
}

std::size_t costly(std::span<const Start> history) {
  return static_cast<std::size_t>(std::ranges::count_if(history, costs));
}

std::string failure_of(const step::EndRecord& record) {
  std::string text = record.evidence;
  const auto cut = [&text](std::string_view from, std::size_t length = std::string::npos) {
    if (const auto at = text.find(from); at != std::string::npos) text.erase(at, length);
  };
  if (record.cause == Cause::hang) {
    cut(";");  // where its stack is
  } else {     // "rank 2 (local 0) on node3: exit status 7, 3.1 s after the start; all 4 tasks ended this way"
    text.erase(0, std::min(text.find(": "), text.size()));
    for (const std::string_view advice : {"; all ", "; the others may wait", "; SIGKILL comes"}) cut(advice);
    constexpr std::string_view when = " after the start";
    if (const auto end = text.find(when); end != std::string::npos) {
      const auto begin = text.rfind(", ", end);
      text.erase(begin, std::min(text.find("; ", end), text.size()) - begin);  // with the rank's last call
    }
  }
  for (auto at = text.find(record.node); !record.node.empty() && at != std::string::npos; at = text.find(record.node))
    text.erase(at, record.node.size());
  std::string out =
      concat({to_string(record.cause), " ", std::to_string(record.shell_status()), text.empty() ? "" : " "});
  for (const char c : text) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit || out.back() != '#') out += digit ? '#' : c;
  }
  return out;
}

std::vector<std::string> without(const Nodes& nodes, std::span<const std::string> excluded) {
  std::vector<std::string> out;
  auto spare = nodes.spares.begin();
  for (const std::string& node : nodes.step) {
    if (!contains(excluded, node)) {
      out.push_back(node);
      continue;
    }
    while (spare != nodes.spares.end() && contains(excluded, *spare)) ++spare;
    if (spare != nodes.spares.end()) out.push_back(*spare++);
  }
  return out;
}

std::string_view to_string(Action action) {
  constexpr std::array<std::string_view, 5> names = {"restart", "swap", "fewer", "requeue", "end"};
  return names.at(static_cast<std::size_t>(action));
}

bool contains(std::span<const std::string> names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

std::string names_of(std::span<const std::string> nodes) {
  const std::vector<std::string_view> views(nodes.begin(), nodes.end());
  return text::join(views);
}

}  // namespace amldist::keep
