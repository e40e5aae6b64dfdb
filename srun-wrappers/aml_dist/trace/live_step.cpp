#include "aml_dist/trace/live_step.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "aml_dist/common/side_step.hpp"
#include "aml_dist/trace/call_places.hpp"
#include "base/os/process_tree.hpp"
#include "base/text/tasks_per_node.hpp"
#include "base/text/text.hpp"
#include "base/time/calendar_time.hpp"
#include "shared/exit_status.hpp"
#include "step/messages/rank_state.hpp"
#include "trace/record/process_activity.hpp"
#include "trace/record/process_stack.hpp"

namespace amldist::tools {
namespace {

using text::concat;
using trace::Recording;

/// In what a node prints: before each state, and before each stack, which begins with its rank. None of them is in a
/// state.
constexpr char state_mark = '\x1e';
constexpr char stack_mark = '\x1d';
/// Before what NCCL's RAS says, which the node of rank 0 asks.
constexpr char ras_mark = '\x1c';
/// Between the two looks by which is told what a process does.
constexpr std::chrono::milliseconds between_looks{300};
constexpr std::chrono::milliseconds stack_patience{2000};

struct StepOnNodes {
  std::string id;     ///< "42.0"
  std::string nodes;  ///< a host list
};

Result<StepOnNodes> find_step_on_nodes(const std::string& name) {
  const std::string job = name.substr(0, name.find('.'));
  const auto queued = find_job(job, name != job);
  if (!queued && queued.error().code == Errc::invalid_argument) return queued.error();
  if (!queued) return Error{Errc::not_found, concat({"no step of ", text::quote(name), " runs"})};
  auto steps = running_steps(*queued);
  if (!steps) return steps.error();
  if (name != job) std::erase_if(*steps, [&](const auto& each) { return concat({job, ".", each.first}) != name; });
  if (steps->empty()) return Error{Errc::not_found, concat({"no step of ", text::quote(name), " runs"})};
  const auto& [first, nodes] = *steps->begin();
  if (steps->size() == 1) return StepOnNodes{concat({queued->number, ".", first}), nodes};
  return Error{Errc::invalid_argument, concat({"job ", job, " has ", std::to_string(steps->size()),
                                               " steps that run, name one, such as ", job, ".", first})};
}

/// srun mixes the lines of the nodes, each behind "3: ", the number of its task: one node's text after the other.
std::string unlabelled(std::string_view out) {
  std::map<std::uint64_t, std::string> texts;
  for (const std::string_view line : text::split(out, '\n')) {
    const auto colon = line.find(": ");
    const auto task = text::to_number(text::trim(line.substr(0, colon)), most_tasks);
    if (colon != std::string_view::npos && task) texts[*task] += concat({line.substr(colon + 2), "\n"});
  }
  std::string all;
  for (const auto& [task, own] : texts) all += own;
  return all;
}

Result<std::string> ask_nodes(const StepOnNodes& step, bool stacks) {
  constexpr std::size_t most = std::size_t{512} << 20;
  std::vector<std::string> arguments = {"trace", "--states", step.id};
  if (stacks) arguments.emplace_back("--stacks");
  auto done = run_beside(step.id, step.nodes, arguments, most, true);
  if (!done) return done.error();
  if (!done->out.empty() || done->status == 0) return unlabelled(done->out);
  const std::string said = last_line_of(done->err);
  return Error{Errc::unavailable,
               concat({"the nodes of step ", step.id, " could not be asked: ", said.empty() ? "srun failed" : said})};
}

/// Adds a state; the second one of a recorder tells what its process did since the first.
void add_state(std::map<std::pair<std::uint32_t, std::string>, Recording>& all, std::string_view text,
               std::int64_t now_ns) {
  const auto size = step::told_size(text, most_tasks);
  auto state = size ? step::parse_rank_state(text, *size, now_ns) : std::nullopt;
  if (!state) return;
  const std::pair key(state->rank, state->source);
  const auto first = all.find(key);
  if (first != all.end() && first->second.totals && state->totals)
    state->activity = trace::activity_between(*first->second.totals, *state->totals);
  all.insert_or_assign(key, std::move(*state));
}

void add_stack(std::map<std::uint32_t, std::string>& stacks, std::string_view text) {
  const auto rank = text::to_number(text.substr(0, text.find('\n')), most_tasks);
  if (rank && text.find('\n') != std::string_view::npos)
    stacks.insert_or_assign(static_cast<std::uint32_t>(*rank), std::string(text.substr(text.find('\n') + 1)));
}

LiveStep read_answers(std::string_view answers, std::int64_t now_ns) {
  LiveStep live;
  std::map<std::pair<std::uint32_t, std::string>, Recording> all;
  while (!answers.empty()) {
    const char mark = answers.front();
    const auto end = std::min(answers.find_first_of("\x1e\x1d\x1c", 1), answers.size());
    const std::string_view text = answers.substr(1, end - 1);
    if (mark == state_mark) add_state(all, text, now_ns);
    else if (mark == stack_mark) add_stack(live.stacks, text);
    else if (mark == ras_mark) live.ras = parse_ras(text);
    answers.remove_prefix(end);
  }
  for (auto& [key, recording] : all) live.step.recordings.push_back(std::move(recording));
  return live;
}

void print_states(TracedStep step) {
  const auto processes = ProcessTable::read();
  for (Recording& recording : step.recordings) {
    recording.totals = trace::totals_of(recording.pid, processes);
    std::printf("%c%s", state_mark, step::to_rank_state(recording, recording.present_ns()).c_str());
  }
}

}  // namespace

bool is_step_id(std::string_view name) noexcept {
  const auto is_number = [](std::string_view part) { return text::to_number(part, 0xffffffffU).has_value(); };
  const auto parts = text::split(name, '.');
  const auto job = text::split(parts.front(), '_');
  return parts.size() <= 2 && job.size() <= 2 && std::ranges::all_of(job, is_number) &&
         (parts.size() == 1 || is_number(parts.back()));
}

Result<LiveStep> read_live_step(const std::string& name, bool stacks) {
  const auto step = find_step_on_nodes(name);
  if (!step) return step.error();
  const auto answers = ask_nodes(*step, stacks);
  if (!answers) return answers.error();
  const std::int64_t now = calendar_ns();
  LiveStep live = read_answers(*answers, now);
  if (live.step.recordings.empty())
    return Error{Errc::unavailable, concat({"step ", step->id,
                                            " runs, and no rank of it has recorded a call: start it with "
                                            "the key trace or hang= (aml_dist(7))"})};
  for (Recording& each : live.step.recordings) each.job = step->id;
  live.step.folder = "memory of " + step->nodes;
  live.step.now_ns = now;
  live.step.stalls = trace::find_stalls(live.step.recordings);
  live.step.hang = trace::diagnose_hang(live.step.recordings);
  return live;
}

int print_own_states(const std::string& step, bool stacks) {
  const auto folder = find_step_folder(step);
  const auto read = folder ? read_traced_step(*folder) : Result<TracedStep>(folder.error());
  if (!read) return commands::exit_done;  // no rank of it is here, or none records
  print_states(*read);
  std::fflush(stdout);
  std::this_thread::sleep_for(between_looks);
  auto again = read_traced_step(*folder);
  if (again) {
    add_places(again->recordings);
    print_states(std::move(*again));
  }
  const auto& all = read->recordings;
  for (std::size_t i = 0; stacks && i < all.size(); ++i) {
    const bool is_last = i + 1 == all.size() || all[i + 1].rank != all[i].rank;  // PyTorch's recorder says most
    if (!is_last || all[i].writer == trace::Writer::gone) continue;
    Recording recording = all[i];
    recording.path = concat({read->folder, "/", recording.path});
    std::printf("%c%u\n%s", stack_mark, recording.rank, trace::stack_of(recording, stack_patience).c_str());
  }
  const bool has_first = std::ranges::any_of(all, [](const Recording& each) { return each.rank == 0; });
  if (const auto ras = has_first ? ask_nccl_ras(all, ras_patience) : std::nullopt)
    std::printf("%c%s", ras_mark, to_text(*ras).c_str());
  return commands::exit_done;
}

std::string merged_stacks(const std::map<std::uint32_t, std::string>& stacks) {
  // The number of the process is each rank's own.
  const auto common = [](std::string_view stack) { return stack.substr(std::min(stack.find('\n'), stack.size())); };
  std::map<std::string_view, std::vector<std::uint32_t>> ranks;
  for (const auto& [rank, stack] : stacks) ranks[common(stack)].push_back(rank);
  std::vector<std::pair<std::string_view, std::vector<std::uint32_t>>> sorted(ranks.begin(), ranks.end());
  std::ranges::stable_sort(sorted, [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  std::string out;
  for (const auto& [stack, own] : sorted) {
    out += concat({"\n", text::count(own.size(), "rank"), " (", trace::compress_ranks(own), "), as rank ",
                   std::to_string(own.front()), ":\n", stacks.at(own.front())});
  }
  return out;
}

}  // namespace amldist::tools
