// What a node tells srun of a rank under hang=: whoever has the step's token, so any process of the user's, can send
// it.
#include "step/messages/rank_state.hpp"

#include "fuzz.hpp"
#include "step/server/last_states.hpp"
#include "trace/diagnosis/habit.hpp"
#include "trace/diagnosis/hang_diagnosis.hpp"

namespace amldist::fuzz::rank_state {
namespace {

using trace::Recording;

constexpr std::uint32_t tasks = 1000;
constexpr std::int64_t now_ns = 1'760'000'000'000'000'000;

void check_members(const Recording& state) {
  require(state.rank < state.size && state.size == tasks, "the rank is one of the step's");
  if (state.wrong) {
    require(state.wrong->rank.value_or(0) < tasks, "whose call is wrong is in the step");
    require_sentence(state.note);
  }
  if (state.told_order) {
    require(state.told_order->calls.size() <= state.told_order->newest, "no more calls than the rank has made");
    for (const auto& [mark, is_custom] : state.told_order->calls) require(mark < trace::mark_end, "a mark is a mark");
  }
  for (const auto& each : state.communicators) {
    require(each.rank < each.size, "a rank is below its communicator's size");
    require(each.world_ranks.empty() || each.world_ranks.size() == each.size, "all members are known, or none");
    for (const std::uint32_t rank : each.world_ranks.to_list()) require(rank < tasks, "a member is a rank of the step");
  }
  for (const auto& call : state.calls) {
    require(state.communicator(call.communicator) != nullptr, "a call is on a communicator of the text");
    require_sentence(trace::describe_call(call));
  }
}

/// As srun goes on with it: alone, and beside a rank that says the same.
bool check_verdict(const Recording& state) {
  std::vector<Recording> step = {state, state};
  step[1].rank = (state.rank + 1) % tasks;
  for (auto& each : step[1].communicators) each.rank = (each.rank + 1) % each.size;
  const auto verdict = trace::diagnose_hang(step);
  if (!verdict) return false;
  require(!trace::sentence(*verdict, 60).empty(), "a verdict is told");
  require(trace::is_same(*verdict, *verdict), "a verdict is the same as itself");
  return true;
}

}  // namespace

const std::string_view separator = "\n";

void try_input(std::string_view input) {
  constexpr std::size_t most_bytes = std::size_t{1} << 20;
  const auto state = within(most_bytes, [input] { return step::parse_rank_state(input, tasks, now_ns); });
  if (!state) return;
  require(input.size() <= step::longest_rank_state, "a longer text is refused");
  require(step::longest_wait_ms(*state, now_ns) >= 0, "a wait is not negative");
  check_members(*state);
  static_cast<void>(within(8 * most_bytes, [&] { return check_verdict(*state); }));
  step::LastStates last(tasks);
  last.take(input);
  const auto cause = within(8 * most_bytes, [&] { return last.cause(); });
  require(!state->wrong || (cause && cause->wrong_call == state->note), "what libamldist has found is believed");
  const std::string written = step::to_rank_state(*state, now_ns);
  require(written.size() <= step::longest_rank_state, "a state fits in a datagram");
  const auto again = step::parse_rank_state(written, tasks, now_ns);
  require(again.has_value(), "a state that is written out can be read");
  require(again->wrong == state->wrong, "whose call is wrong is written out");
}

}  // namespace amldist::fuzz::rank_state
