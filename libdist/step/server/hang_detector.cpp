#include "step/server/hang_detector.hpp"

#include <algorithm>
#include <ctime>

#include "base/text/text.hpp"
#include "base/time/calendar_time.hpp"
#include "base/time/tick_clock.hpp"
#include "step/cause/cause.hpp"
#include "step/messages/control_message.hpp"
#include "step/messages/rank_state.hpp"
#include "step/messages/wait_shares.hpp"
#include "trace/record/process_stack.hpp"

namespace amldist::step {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using text::concat;
using trace::Recording;
using trace::Writer;

constexpr seconds between_looks{1};
/// A node sends the states of its ranks every second or so, later if it is short of processors. What is older does not
/// count.
constexpr seconds fresh_for{15};
constexpr seconds patience_for_stacks{4};
constexpr std::size_t most_told = 1U << 20;

/// States tell ages, so any clock will do that does not jump.
std::int64_t now_ns() noexcept { return static_cast<std::int64_t>(TickClock::monotonic_ns()); }

std::string_view word_of(Writer writer) {
  if (writer == Writer::runs) return "runs";
  return writer == Writer::stopped ? "stopped" : "dead";
}

/// The ranks whose stacks tell most: of the first culprits, and of one that waits.
std::string ranks_to_ask(const trace::HangDiagnosis& diagnosis) {
  constexpr std::size_t most = 4;
  std::vector<std::uint32_t> ranks;
  for (const auto& each : diagnosis.stall.missing) {
    if (ranks.size() < most && !each.is_in_group_only) ranks.push_back(each.rank);
  }
  for (const auto& link : diagnosis.circle) {
    if (ranks.size() < most) ranks.push_back(link.waiting.front());
  }
  const auto waiting = std::ranges::find_if(
      diagnosis.waits, [&](std::uint32_t rank) { return std::ranges::find(ranks, rank) == ranks.end(); });
  if (waiting != diagnosis.waits.end()) ranks.push_back(*waiting);
  std::string text;
  for (const std::uint32_t rank : ranks) text += concat({text.empty() ? "" : ",", std::to_string(rank)});
  return text;
}

/// How long somebody has to wait. A rank that is still in a call that others have left has come: on a machine that is
/// short of processors it may only be slow to leave. A node that is silent may be slow, too, above all after srun has
/// gone: then it has to find the process that stands in for it.
milliseconds patience_for(trace::HangDiagnosis::Kind kind, bool is_node_silent, std::uint32_t given) {
  constexpr std::int64_t times = 5;
  constexpr seconds least{30};
  const seconds own(given);
  if (is_node_silent) return std::max(own, least);
  return kind == trace::HangDiagnosis::Kind::slow ? std::max(own * times, least) : own;
}

}  // namespace

HangDetector::Wish HangDetector::take_wait(std::string_view text, Clock::time_point now) {
  if (!first_wait_at_) first_wait_at_ = now;
  if (text != unrecorded) is_recorded_ = true;
  if (text == debugged) held_until_ = now + fresh_for;
  const auto wait = text::to_number(text, 1ULL << 50);
  if (!wait || over_) return {};
  if (asked_at_) return {.states = false, .stacks = asked_};
  const bool long_wait = *wait * 2 >= std::uint64_t{seconds_} * 1000;
  if (long_wait && !last_look_) last_look_ = now;
  return {.states = last_look_.has_value(), .stacks = {}};
}

void HangDetector::take_state(std::string_view text, Clock::time_point now) {
  const auto size = learns_ ? told_size(text, tasks_) : tasks_;
  auto state = size ? parse_rank_state(text, *size, now_ns()) : std::nullopt;
  if (!state || states_.size() >= most_told) return;
  const auto [known, is_new] = index_.try_emplace({state->rank, state->source}, states_.size());
  if (is_new) {
    states_.emplace_back();
    told_at_.emplace_back();
    marks_.emplace_back();
  }
  tasks_ = state->size;
  learns_ = false;
  states_[known->second] = std::move(*state);
  told_at_[known->second] = now;
  take_activity(known->second);
}

/// What the process did in the last seconds, by totals that are half as old to as old as this.
void HangDetector::take_activity(std::size_t state) {
  if (!states_[state].totals) return;
  const trace::ActivityTotals& now = *states_[state].totals;
  Marks& marks = marks_[state];
  const std::int64_t window_ms = std::clamp<std::int64_t>(std::int64_t{seconds_} * 500, 2000, 30'000);
  if (marks.mark.at_ms == 0) marks = {now, now};
  for (trace::ActivityTotals* const each : {&marks.mark, &marks.next})
    each->runnable = std::min(each->runnable, now.runnable);
  if (now.at_ms - marks.next.at_ms >= window_ms / 2) marks = {marks.next, now};
  states_[state].activity = trace::activity_between(marks.mark, now);
}

void HangDetector::take_stack(std::string_view text) {
  const auto rank = text::to_number(text.substr(0, text.find(';')), tasks_);
  if (!rank || text.find(';') == std::string_view::npos || text.size() > 2 * trace::longest_stack) return;
  std::string stack(text.substr(text.find(';') + 1));
  std::ranges::replace_if(
      stack, [](char c) { return (c < ' ' && c != '\n') || c >= 0x7f; }, '?');
  stacks_.insert_or_assign(static_cast<std::uint32_t>(*rank), std::move(stack));
}

/// "2;the kernel killed its process ...".
void HangDetector::take_cause(std::string_view text) {
  const auto end = text.find(';');
  const auto rank = text::to_number(text.substr(0, end), tasks_);
  if (!rank || end == std::string_view::npos || !is_cause_text(text.substr(end + 1))) return;
  causes_.insert_or_assign(static_cast<std::uint32_t>(*rank), std::string(text.substr(end + 1)));
}

void HangDetector::take_shares(std::string_view text, Clock::time_point now) {
  if (named_) return;
  auto ranks = parse_wait_shares(text, tasks_);
  if (!ranks) return;
  for (trace::OwnWaits& each : *ranks) {
    const std::uint32_t rank = each.rank;
    shares_.insert_or_assign(rank, ToldShare{std::move(each), now});
  }
}

std::optional<std::string> HangDetector::take(std::string_view datagram, std::uint64_t token, Clock::time_point now) {
  if (const auto wait = parse_text(Subject::waits, datagram, token)) {
    const auto wish = take_wait(*wait, now);
    if (!wish.stacks.empty()) return to_datagram(Subject::wants_stacks, wish.stacks, token);
    return to_datagram(wish.states ? MessageType::wants_states : MessageType::heard, token);
  }
  if (const auto state = parse_text(Subject::state, datagram, token)) {
    take_state(*state, now);
    return std::string();
  }
  if (const auto shares = parse_text(Subject::shares, datagram, token)) {
    take_shares(*shares, now);
    return std::string();
  }
  if (const auto stack = parse_text(Subject::stack, datagram, token)) {
    take_stack(*stack);
    return std::string();
  }
  if (const auto cause = parse_text(Subject::cause, datagram, token)) {
    take_cause(*cause);
    return std::string();
  }
  return std::nullopt;
}

std::optional<std::string> HangDetector::straggler(Clock::time_point now) {
  constexpr seconds believed_after{5};
  constexpr seconds told_within{30};
  if (named_ || over_ || shares_.size() != tasks_) return std::nullopt;
  if (weighed_at_ && now - *weighed_at_ < between_looks) return std::nullopt;
  weighed_at_ = now;
  std::vector<trace::OwnWaits> ranks;
  ranks.reserve(shares_.size());
  for (const auto& [rank, told] : shares_) {
    if (now - told.at <= told_within) ranks.push_back(told.waits);
  }
  const auto found = ranks.size() == tasks_ ? trace::straggler_of(ranks) : std::nullopt;
  if (!found || straggler_ != found->rank.rank) {
    straggler_ = found ? std::optional(found->rank.rank) : std::nullopt;
    straggler_since_ = now;
    return std::nullopt;
  }
  if (now - *straggler_since_ < believed_after) return std::nullopt;
  named_ = true;
  return trace::sentence(*found);
}

std::optional<std::string> HangDetector::unwatched(Clock::time_point now) {
  const seconds patience = std::max(seconds(seconds_), seconds(60));  // a program may load for long
  if (is_recorded_ || !first_wait_at_ || now - *first_wait_at_ < patience) return std::nullopt;
  is_recorded_ = true;
  return concat(
      {"hang=", std::to_string(seconds_), ": no rank has recorded a call in the first ",
       std::to_string(patience.count()),
       " s: until one does, no hang is noticed ('Unmodified programs' in the user guide says what is recorded)"});
}

std::optional<Clock::time_point> HangDetector::due() const {
  if (over_ || !last_look_) return std::nullopt;
  return *last_look_ + between_looks;
}

bool HangDetector::is_fresh(std::size_t state, Clock::time_point now) const {
  return now - told_at_[state] <= fresh_for;
}

/// In a call, for half of the time that is a hang.
bool HangDetector::does_anyone_wait(std::span<const Recording> recordings) const {
  return std::ranges::any_of(recordings, [&](const Recording& each) {
    return longest_wait_ms(each, now_ns()) * 2 >= std::int64_t{seconds_} * 1000;
  });
}

/// Whether nothing has come lately from the node of a rank that others wait for.
bool HangDetector::is_node_silent(Clock::time_point now) const {
  const auto is_silent = [&](const trace::MissingRank& each) {
    if (each.is_in_group_only) return false;
    auto state = index_.lower_bound({each.rank, ""});
    while (state != index_.end() && state->first.first == each.rank && !is_fresh(state->second, now)) ++state;
    return state == index_.end() || state->first.first != each.rank;
  };
  return knows_tasks_ && diagnosis_->kind == trace::HangDiagnosis::Kind::unrecorded &&
         std::ranges::any_of(diagnosis_->stall.missing, is_silent);
}

/// Of the ranks that others wait for. One that is busy speaks for all: the others may wait for what it makes.
HangDetector::Culprits HangDetector::culprits(Clock::time_point now) const {
  constexpr std::int64_t least_ms = 1000;
  using Kind = trace::HangDiagnosis::Kind;
  if (diagnosis_->kind != Kind::not_come && diagnosis_->kind != Kind::unrecorded) return Culprits::idle;
  Culprits all = Culprits::idle;
  for (const trace::MissingRank& each : diagnosis_->stall.missing) {
    const auto state = index_.lower_bound({each.rank, ""});
    const bool is_known = state != index_.end() && state->first.first == each.rank && each.unjudged_wait == nullptr &&
                          !each.is_in_group_only;
    if (!is_known || !is_fresh(state->second, now) || !states_[state->second].totals) continue;
    const Recording& own = states_[state->second];
    if (own.totals->at_ms - marks_[state->second].mark.at_ms < least_ms) all = std::max(all, Culprits::unknown);
    else if (own.activity.obstacle == trace::Obstacle::output) all = std::max(all, Culprits::blocked);
    else if (own.activity.is_busy()) all = std::max(all, Culprits::busy);
  }
  return all;
}

/// nullopt: all of states_ are fresh, and need not be copied.
std::optional<std::vector<Recording>> HangDetector::fresh_states(Clock::time_point now) const {
  std::vector<std::size_t> fresh;
  for (std::size_t i = 0; i < states_.size(); ++i) {
    if (is_fresh(i, now)) fresh.push_back(i);
  }
  if (fresh.size() == states_.size()) return std::nullopt;
  std::vector<Recording> some;
  some.reserve(fresh.size());
  for (const std::size_t i : fresh) some.push_back(states_[i]);
  return some;
}

void HangDetector::forget_states() {
  last_look_.reset();
  states_.clear();
  told_at_.clear();
  marks_.clear();
  index_.clear();
}

void HangDetector::begin_again(std::optional<trace::HangDiagnosis> found, Clock::time_point now) {
  diagnosis_ = std::move(found);
  since_ = now;
  asked_at_.reset();
}

bool HangDetector::is_told(milliseconds waited, bool is_busy) const {
  constexpr int times = 10;
  if (!told_ || !trace::is_same(told_->diagnosis, *diagnosis_)) return false;
  if (told_->is_busy && !is_busy) return false;
  return ends_ || waited < told_->waited * times;
}

bool HangDetector::have_stacks_come(Clock::time_point now) {
  if (!asked_at_) {
    asked_at_ = now;
    asked_ = ranks_to_ask(*diagnosis_);
    stacks_.clear();
    causes_.clear();
  }
  const auto wanted = static_cast<std::size_t>(std::ranges::count(asked_, ',')) + 1;
  return stacks_.size() >= wanted || now - *asked_at_ >= patience_for_stacks;
}

std::optional<HangDetector::Hang> HangDetector::look(Clock::time_point now) {
  if (over_ || !last_look_ || now < *last_look_ + between_looks) return std::nullopt;
  last_look_ = now;
  if (held_until_ && now < *held_until_) {
    begin_again(std::nullopt, now);
    return std::nullopt;
  }
  const auto some = fresh_states(now);
  const std::span<const Recording> recordings = some ? *some : states_;
  const bool all_stopped =
      std::ranges::all_of(recordings, [](const Recording& each) { return each.writer == Writer::stopped; });
  const auto found = all_stopped ? std::nullopt : trace::diagnose_hang(recordings);
  if (!found || !diagnosis_ || !trace::is_same(*found, *diagnosis_)) {
    begin_again(found, now);
    if (!found && !does_anyone_wait(recordings) && !states_.empty()) forget_states();
    return std::nullopt;
  }
  diagnosis_ = found;
  // Ranks that have begun calls and compute meanwhile do not wait.
  if (!does_anyone_wait(recordings)) return std::nullopt;
  const milliseconds waited((now_ns() - found->stall.since_ns) / 1'000'000);
  const milliseconds patience = patience_for(found->kind, is_node_silent(now), seconds_);
  auto seen = waited - age_of_culprits(now);  // how long ago it was known that they had not come
  if (held_until_) seen = std::min(seen, std::chrono::duration_cast<milliseconds>(now - *held_until_));
  const Culprits doing = culprits(now);
  if (doing == Culprits::unknown || seen < patience || now - *since_ < patience / 2) return std::nullopt;
  const bool is_busy = doing == Culprits::blocked || (doing == Culprits::busy && seen < patience * busy_);
  if (is_told(waited, is_busy) || !have_stacks_come(now)) return std::nullopt;
  asked_at_.reset();
  over_ = ends_ && !is_busy;
  told_ = Told{*found, waited, is_busy};
  return hang(waited, is_busy, now);
}

HangDetector::Hang HangDetector::hang(milliseconds waited, bool is_busy, Clock::time_point now) const {
  Hang hang{
      is_busy, trace::sentence(*diagnosis_, static_cast<std::uint64_t>(waited.count() / 1000)), place(), {}, {}, {},
      report()};
  if (is_node_silent(now)) hang.sentence += "; a node tells nothing of its ranks";
  const auto& culprits = diagnosis_->stall.missing;
  if (culprits.empty() || culprits.front().is_in_group_only || !diagnosis_->is_decided()) return hang;
  hang.rank = culprits.front().rank;
  hang.node = std::string(culprits.front().host());
  const auto cause = causes_.find(*hang.rank);
  if (cause != causes_.end()) hang.cause = cause->second;
  return hang;
}

/// What is known of the ranks that the diagnosis names is as old as this.
milliseconds HangDetector::age_of_culprits(Clock::time_point now) const {
  Clock::duration oldest{};
  const auto look_at = [&](const trace::MissingRank& each) {
    for (auto state = index_.lower_bound({each.rank, ""}); state != index_.end() && state->first.first == each.rank;
         ++state) {
      if (is_fresh(state->second, now)) oldest = std::max(oldest, now - told_at_[state->second]);
    }
  };
  std::ranges::for_each(diagnosis_->stall.missing, look_at);
  for (const auto& link : diagnosis_->circle) std::ranges::for_each(link.missing, look_at);
  return std::chrono::duration_cast<milliseconds>(oldest);
}

std::string HangDetector::place() const {
  const auto& culprits = diagnosis_->stall.missing;
  if (culprits.size() != 1 || !diagnosis_->is_decided()) return {};
  const auto stack = stacks_.find(culprits.front().rank);
  constexpr std::size_t most = 120;
  return stack != stacks_.end() ? trace::innermost_call(stack->second).substr(0, most) : std::string();
}

std::string HangDetector::report() const {
  std::string text = concat({trace::sentence(*diagnosis_, 0), "\ndiagnosis: ", trace::to_string(diagnosis_->kind),
                             "\nranks that wait: ", trace::compress_ranks(diagnosis_->waits), "\n\n"});
  text += "stalled calls:\n";
  for (const auto& stall : trace::find_all_stalls(states_)) text += concat({"  ", trace::sentence(stall), "\n"});
  text += "\nranks:\n";
  for (const auto& [key, index] : index_) {
    const Recording& each = states_[index];
    std::string calls;
    for (const auto& call : each.calls) {
      if (call.pending()) calls += concat({calls.empty() ? " in " : ", ", trace::describe_call(call)});
    }
    text +=
        concat({"  rank ", std::to_string(each.rank), " (local ", std::to_string(each.local_rank), ") on ", each.host,
                ", ", each.source, ": ", word_of(each.writer), calls.empty() ? ", in no call" : calls, "\n"});
  }
  for (const auto& [rank, cause] : causes_) text += concat({"\nrank ", std::to_string(rank), ": ", cause, "\n"});
  for (const auto& [rank, stack] : stacks_) text += concat({"\nrank ", std::to_string(rank), ":\n", stack});
  return text;
}

}  // namespace amldist::step
