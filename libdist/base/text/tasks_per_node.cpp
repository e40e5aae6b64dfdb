#include "base/text/tasks_per_node.hpp"

#include "base/text/hostlist.hpp"
#include "base/text/text.hpp"

namespace amldist {
namespace {

using text::concat;
using text::quote;

Result<TasksRun> parse_piece(std::string_view piece) {
  const Error bad{Errc::invalid_argument,
                  concat({"tasks per node: ", quote(piece), " is neither N nor N(xREPEAT) with numbers from 1"})};
  std::string_view tasks_text = piece;
  std::uint64_t nodes = 1;
  if (const auto open = piece.find("(x"); open != std::string_view::npos) {
    if (!piece.ends_with(')')) return bad;
    const auto repeat = text::to_number(piece.substr(open + 2, piece.size() - open - 3), Hostlist::most_hosts);
    if (!repeat || *repeat == 0) return bad;
    nodes = *repeat;
    tasks_text = piece.substr(0, open);
  }
  const auto tasks = text::to_number(tasks_text, most_tasks);
  if (!tasks || *tasks == 0) return bad;
  return TasksRun{static_cast<std::uint32_t>(nodes), static_cast<std::uint32_t>(*tasks)};
}

}  // namespace

Result<std::vector<TasksRun>> parse_tasks_per_node(std::string_view text) {
  if (text.size() > Hostlist::longest_text) return Error{Errc::limit, "tasks per node: the text is too long"};
  std::vector<TasksRun> runs;
  std::uint64_t nodes = 0;
  std::uint64_t tasks = 0;
  for (const std::string_view piece : text::split(text, ',')) {
    const auto run = parse_piece(piece);
    if (!run) return run.error();
    nodes += run->nodes;
    tasks += static_cast<std::uint64_t>(run->nodes) * run->tasks;
    if (nodes > Hostlist::most_hosts || tasks > most_tasks) {
      return Error{Errc::limit, concat({"tasks per node: too many nodes or tasks in ", quote(text)})};
    }
    if (!runs.empty() && runs.back().tasks == run->tasks) runs.back().nodes += run->nodes;
    else runs.push_back(*run);
  }
  return runs;
}

}  // namespace amldist
