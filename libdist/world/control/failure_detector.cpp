#include "world/control/failure_detector.hpp"

#include <algorithm>
#include <utility>

#include "base/text/printable.hpp"
#include "trace/diagnosis/call_words.hpp"
#include "world/control/status_frames.hpp"
#include "world/wireup/limits.hpp"

namespace amldist::world {
namespace {

using std::chrono::milliseconds;

/// How often ranks are asked again that have not reached the call in question yet.
constexpr milliseconds ask_again(20);
/// Of so many ranks of a node that do not answer, the others are not tried as its leader: the node may be lost.
constexpr std::size_t tries_in_a_node = 2;
/// Ranks that are asked for the counts of an alltoallv: the two of the pair, and others to see which of them is right.
constexpr std::size_t most_witnesses = 16;
/// A rank of the world that is none.
constexpr std::uint32_t nobody = UINT32_MAX;

std::vector<std::uint32_t> listed(const std::set<std::uint32_t>& ranks) { return {ranks.begin(), ranks.end()}; }

/// The state of each rank that answered, with how many ranks are in it.
template <typename Visit>
void for_states(const MergedStates& answers, Visit visit) {
  for (const auto& [bytes, runs] : answers.states()) visit(read_state(bytes), runs);
}

std::size_t rank_in(const CommWatch& watch, std::uint32_t world_rank) {
  return static_cast<std::size_t>(std::ranges::find(watch.members(), world_rank) - watch.members().begin());
}

}  // namespace

milliseconds patience_of(milliseconds grace) noexcept {
  return std::clamp(grace / 5, milliseconds(60), milliseconds(120));
}

// ---- cases ----
FailureDetector::Case* FailureDetector::find(std::uint64_t id) {
  const auto found = std::ranges::find_if(cases_, [&](const auto& each) { return each->watch->id() == id; });
  return found == cases_.end() ? nullptr : found->get();
}

FailureDetector::Case& FailureDetector::case_of(const std::shared_ptr<CommWatch>& watch) {
  if (Case* const known = find(watch->id())) return *known;
  cases_.push_back(std::make_unique<Case>());
  cases_.back()->watch = watch;
  cases_.back()->tree = std::make_shared<const CommTree>(host_.table(), watch->members());
  return *cases_.back();
}

CommTree::IsOut FailureDetector::out_of(const Ranks& silent) const {
  return [this, &silent](std::uint32_t rank) { return silent.contains(rank) || is_gone(rank); };
}

void FailureDetector::leave_out(const CommTree& tree, Ranks& silent, std::uint32_t rank) {
  silent.insert(rank);
  const auto node = tree.neighbours_of(rank);
  const auto tried = std::ranges::count_if(node, [&](std::uint32_t each) { return silent.contains(each); });
  if (std::cmp_greater_equal(tried, tries_in_a_node)) silent.insert(node.begin(), node.end());
}

// ---- up the tree ----
void FailureDetector::open(const std::shared_ptr<CommWatch>& watch, const DiagnosisTrigger& trigger,
                           milliseconds grace) {
  allow_for_a_stop();
  if (watch->is_lost()) return;
  Case& current = case_of(watch);
  if (current.trigger) return;
  current.trigger = trigger;
  current.grace = grace;
  if (!current.is_root && !current.asker) rise(current);
}

void FailureDetector::rise(Case& current) {
  current.told = current.tree->parent_of(host_.rank(), out_of(current.silent));
  current.is_heard = false;
  current.told_at = host_.now();
  if (!current.told) return coordinate(current);
  FrameWriter report(FrameKind::report);
  report.number(current.watch->id()).number(static_cast<std::uint64_t>(current.grace.count()));
  write_trigger(report, *current.trigger);
  write_ranks(report, listed(current.silent));
  host_.send_to(*current.told, report.take());
}

void FailureDetector::on_report(std::uint32_t from, const std::shared_ptr<CommWatch>& watch, Frame& frame) {
  allow_for_a_stop();
  if (!watch) return;  // it will be left out
  const milliseconds grace(std::min<std::uint64_t>(frame.number(), 10'000));
  const DiagnosisTrigger trigger = read_trigger(frame);
  const auto silent = read_ranks(frame, host_.size());
  const auto size = static_cast<std::int64_t>(watch->members().size());
  if (frame.is_short() || trigger.reporter >= size || trigger.waits_for < calls::Watchdog::anyone ||
      trigger.waits_for >= size)
    return;
  if (const auto diagnosis = watch->diagnosis()) {  // the news and the report crossed
    host_.send_to(from, diagnosis_frame(*watch, {*diagnosis, watch->silent_ranks(), watch->error_subject()}, {}));
    return;
  }
  send_heard(from, watch->id(), FrameKind::report);
  Case& current = case_of(watch);
  for (const std::uint32_t rank : silent) {
    if (rank != host_.rank() && rank != from) current.silent.insert(rank);
  }
  open(watch, trigger, grace);
}

void FailureDetector::poll_rising(Case& current) {
  const bool is_forgotten = current.asker && host_.now() >= current.until + current.grace * 2;
  if (is_forgotten && current.trigger) {
    current.asker.reset();
    rise(current);
  }
  if (!current.told || current.is_root || current.asker) return;
  const auto patience = with_lag(current.is_heard ? current.grace * 2 : patience_of(current.grace));
  if (is_gone(*current.told)) return rise(current);
  if (host_.now() < current.told_at + patience) return;
  leave_out(*current.tree, current.silent, *current.told);
  rise(current);
}

// ---- down and up again ----
void FailureDetector::coordinate(Case& current) {
  current.is_root = true;
  current.until = host_.now() + current.grace;
  ask(current);
}

void FailureDetector::ask(Case& current) {
  ++current.round;
  current.asked_at = host_.now();
  current.asked.clear();
  current.before = std::exchange(current.answers, {});
  current.is_answered = false;
  current.answers.add(current.watch->rank(), state_bytes(current.watch.get()));
  ask_those_below(current);
}

/// Those that are left out are asked by the rank that found them silent, and by the root.
void FailureDetector::ask_those_below(Case& current) {
  for (const std::uint32_t rank : current.tree->children_of(host_.rank(), out_of(current.silent))) {
    if (!current.asked.contains(rank)) ask_one(current, rank, false);
  }
  if (!current.is_root) return;
  for (const std::uint32_t rank : Ranks(current.silent)) {
    if (rank != host_.rank() && !is_gone(rank) && !current.asked.contains(rank)) ask_one(current, rank, true);
  }
}

void FailureDetector::ask_one(Case& current, std::uint32_t rank, bool alone) {
  current.asked[rank] = {host_.now(), alone, false, false};
  const auto left = std::chrono::duration_cast<milliseconds>(current.until - host_.now()) - patience_of(current.grace);
  FrameWriter query(FrameKind::query);
  query.number(current.watch->id())
      .number(current.round)
      .number(static_cast<std::uint64_t>(std::max(left, milliseconds(20)).count()))
      .number(static_cast<std::uint64_t>(current.grace.count()))
      .number(alone ? 1 : 0);
  write_ranks(query, listed(current.silent));
  write_ranks(query, listed(current.witnesses));
  host_.send_to(rank, query.take());
}

void FailureDetector::on_query(std::uint32_t from, std::uint64_t id, const std::shared_ptr<CommWatch>& watch,
                               Frame& frame) {
  allow_for_a_stop();
  const std::uint64_t round = frame.number();
  const milliseconds budget(std::min<std::uint64_t>(frame.number(), 10'000));
  const milliseconds grace(std::min<std::uint64_t>(frame.number(), 10'000));
  const bool alone = frame.number() != 0;
  const auto silent = read_ranks(frame, host_.size());
  const auto witnesses = read_ranks(frame, watch ? static_cast<std::uint32_t>(watch->members().size()) : 0);
  if (frame.is_short()) return;
  if (watch && watch->is_lost()) {
    return host_.send_to(
        from, diagnosis_frame(*watch, {*watch->diagnosis(), watch->silent_ranks(), watch->error_subject()}, {}));
  }
  if (watch && !witnesses.empty()) {
    FrameWriter counts(FrameKind::pair_counts);
    counts.number(id);
    write_pair_counts(counts, watch->pair_counts(), witnesses);
    return host_.send_to(from, counts.take());
  }
  if (!watch || alone) {
    FrameWriter status(FrameKind::status);
    status.number(id).number(round).number(watch ? 0 : 1);
    MergedStates own;
    if (watch) own.add(watch->rank(), state_bytes(watch.get()));
    own.write(status);
    return host_.send_to(from, status.take());
  }
  Case& current = case_of(watch);
  if (current.is_root && host_.rank() < from) return;  // two believe to be the root: the lower rank is
  send_heard(from, id, FrameKind::query);
  current.is_root = false;
  current.asker = from;
  current.grace = grace;
  current.until = host_.now() + budget;
  for (const std::uint32_t rank : silent) {
    if (rank != host_.rank()) current.silent.insert(rank);
  }
  current.round = round - 1;
  ask(current);
  if (is_complete(current)) finish_round(current);
}

void FailureDetector::on_status(std::uint32_t from, std::uint64_t id, Frame& frame) {
  allow_for_a_stop();
  Case* const current = find(id);
  if (current == nullptr || frame.number() != current->round) return;
  const auto asked = current->asked.find(from);
  if (asked == current->asked.end()) return;
  const bool is_unaware = frame.number() != 0;
  const MergedStates states = MergedStates::read(frame, static_cast<std::uint32_t>(current->watch->members().size()));
  asked->second.heard = true;
  asked->second.answered = true;
  current->answered_at = host_.now();
  if (is_unaware) {
    const std::size_t rank = rank_in(*current->watch, from);
    if (rank == current->watch->members().size()) return;  // a report said of a stranger that it was left out
    MergedStates unaware;
    unaware.add(static_cast<std::uint32_t>(rank), state_bytes(nullptr));
    current->answers.add(unaware);
    current->silent.insert(from);  // it does not know who is below it
    ask_those_below(*current);
    if (current->is_answered) send_up(*current, unaware);
  } else {
    current->answers.add(states);
    if (current->is_answered) send_up(*current, states);  // it came late
  }
  if (!current->is_answered && is_complete(*current)) finish_round(*current);
}

void FailureDetector::on_heard(std::uint32_t from, std::uint64_t id, Frame& frame) {
  allow_for_a_stop();
  const auto what = static_cast<FrameKind>(frame.number());
  for (Spreading& each : spreading_) {
    if (what == FrameKind::diagnosis && each.watch->id() == id) each.waits_for.erase(from);
  }
  Case* const current = find(id);
  if (current == nullptr) return;
  if (what == FrameKind::report && current->told == from) current->is_heard = true;
  const auto asked = current->asked.find(from);
  if (what == FrameKind::query && asked != current->asked.end()) asked->second.heard = true;
}

/// Whether all have answered that can.
bool FailureDetector::is_complete(const Case& current) const {
  return std::ranges::all_of(current.asked,
                             [this](const auto& each) { return each.second.answered || is_gone(each.first); });
}

void FailureDetector::poll_asking(Case& current) {
  if (current.is_answered || (!current.is_root && !current.asker)) return;
  bool found = false;
  for (auto& [rank, asked] : current.asked) {
    const bool patient = asked.alone || asked.heard || asked.answered ||
                         host_.now() < asked.since + with_lag(patience_of(current.grace));
    if (patient) continue;
    leave_out(*current.tree, current.silent, rank);
    asked.alone = true;
    found = true;
  }
  // The ranks below one that is gone, or that does not answer, are now below this one.
  found = found || std::ranges::any_of(current.asked, [this](const auto& each) { return is_gone(each.first); });
  if (found) ask_those_below(current);
  if (is_complete(current) || is_time_up(current)) finish_round(current);
}

/// While answers come, the root waits on: with many ranks for each processor the last of them get their turn late, and
/// a name that comes late is better than theirs.
bool FailureDetector::is_time_up(const Case& current) const {
  const auto now = host_.now();
  if (now < current.until) return false;
  const auto latest = current.until + current.grace * 5 / 2;
  return !current.is_root || now >= std::min(current.answered_at + with_lag(current.grace / 4), latest);
}

/// Those below may have answered for some of theirs only, and the others come later.
bool FailureDetector::have_all_answered(const Case& current) const {
  const auto& members = current.watch->members();
  std::vector<bool> known(members.size());
  for (const MergedStates* const answers : {&current.before, &current.answers}) {
    for (const auto& [bytes, runs] : answers->states()) {
      for (const MergedStates::Run& run : runs) std::fill_n(known.begin() + run.first, run.count, true);
    }
  }
  for (std::size_t rank = 0; rank < members.size(); ++rank) {
    if (!known[rank] && !is_gone(members[rank])) return false;
  }
  return true;
}

void FailureDetector::finish_round(Case& current) {
  if (!current.is_root) {
    current.is_answered = true;
    current.answers.merge();
    return send_up(current, current.answers);
  }
  if (current.watch->is_lost() || (!have_all_answered(current) && !is_time_up(current))) return;
  const bool in_time = host_.now() < current.until;
  if (in_time && must_ask_again(current)) {
    if (host_.now() >= current.asked_at + ask_again) ask(current);
    return;
  }
  if (in_time && (must_ask_for_pairs(current) || is_settling(current))) return;
  conclude(current);
}

void FailureDetector::send_up(Case& current, const MergedStates& states) {
  if (!current.asker) return;
  FrameWriter status(FrameKind::status);
  status.number(current.watch->id()).number(current.round).number(0);
  states.write(status);
  host_.send_to(*current.asker, status.take());
}

// ---- judging ----
/// Where two calls differ, all ranks must have reached that call: the majority decides which one is wrong.
bool FailureDetector::must_ask_again(const Case& current) {
  if (!current.trigger->differs) return false;
  std::vector<RankState> states;
  std::optional<RankState> reporter;
  for_states(current.answers, [&](RankState state, const std::vector<MergedStates::Run>& runs) {
    const bool has_reporter = std::ranges::any_of(
        runs, [&](const MergedStates::Run& run) { return current.trigger->reporter - run.first < run.count; });
    if (has_reporter) reporter = state;
    states.push_back(std::move(state));
  });
  if (!reporter || is_point_to_point(reporter->activity.call.operation)) return false;
  const std::uint64_t reached = parting_of(states).value_or(reporter->activity.sequence);
  return std::ranges::any_of(states, [&](const RankState& state) {
    return state.standing == Liveness::here && state.activity.sequence < reached;
  });
}

/// The counts of an alltoallv are as many as there are ranks, so only some ranks are asked for those among them.
bool FailureDetector::must_ask_for_pairs(Case& current) {
  const DiagnosisTrigger& trigger = *current.trigger;
  const auto& members = current.watch->members();
  const bool wanted = trigger.differs && current.watch->activity().call.operation == calls::Operation::alltoallv;
  if (!wanted) return false;
  if (current.witnesses.empty()) {
    current.witnesses.insert(trigger.reporter);
    if (trigger.waits_for >= 0) current.witnesses.insert(static_cast<std::uint32_t>(trigger.waits_for));
    for (std::uint32_t r = 0; r < members.size() && current.witnesses.size() < most_witnesses; ++r) {
      current.witnesses.insert(r);
    }
    for (const std::uint32_t rank : std::set<std::uint32_t>(current.witnesses)) {
      if (rank == current.watch->rank()) current.pairs[rank] = current.watch->pair_counts();
      else ask_one(current, members[rank], true);
    }
  }
  return std::ranges::any_of(
      current.witnesses, [&](std::uint32_t rank) { return !current.pairs.contains(rank) && !is_gone(members[rank]); });
}

void FailureDetector::on_pair_counts(std::uint32_t from, std::uint64_t id, Frame& frame) {
  allow_for_a_stop();
  Case* const current = find(id);
  if (current == nullptr) return;
  const auto& members = current->watch->members();
  const auto rank = static_cast<std::uint32_t>(rank_in(*current->watch, from));
  if (!current->witnesses.contains(rank)) return;
  current->pairs[rank] = read_pair_counts(frame, listed(current->witnesses), members.size());
  current->asked[from].answered = true;
  if (is_complete(*current)) finish_round(*current);
}

std::vector<RankState> FailureDetector::states_of(const Case& current) const {
  const auto& members = current.watch->members();
  std::vector<RankState> states(members.size());
  for (const MergedStates* const answers : {&current.before, &current.answers}) {
    for_states(*answers, [&](const RankState& state, const std::vector<MergedStates::Run>& runs) {
      for (const MergedStates::Run& run : runs) {
        for (std::size_t rank = run.first; rank < std::size_t{run.first} + run.count; ++rank) states[rank] = state;
      }
    });
  }
  const auto local_ranks = host_.table().local_ranks();
  for (std::size_t rank = 0; rank < states.size(); ++rank) {
    if (const auto end = host_.end_of(members[rank])) {
      states[rank] = RankState();
      states[rank].standing = *end;
    }
    states[rank].place = {members[rank], local_ranks[members[rank]], host_.table().host_of(members[rank])};
    const auto pairs = current.pairs.find(static_cast<std::uint32_t>(rank));
    if (pairs != current.pairs.end()) states[rank].pairs = pairs->second;
  }
  return states;
}

/// Ranks that end together, as those of a lost node do, are heard of one after the other, and the diagnosis names all
/// of them. Those that end later than this after the last one are another loss.
bool FailureDetector::is_settling(Case& current) const {
  constexpr milliseconds together(50);
  const auto gone = static_cast<std::size_t>(
      std::ranges::count_if(current.watch->members(), [this](std::uint32_t rank) { return is_gone(rank); }));
  if (gone != current.gone) {
    current.gone = gone;
    current.gone_at = host_.now();
  }
  return gone != 0 && host_.now() < current.gone_at + together;
}

void FailureDetector::conclude(Case& current) {
  const auto states = states_of(current);
  DiagnosisTrigger trigger = *current.trigger;
  const auto waits = [](const RankState& rank) { return rank.standing == Liveness::here && rank.activity.inside; };
  const auto other = std::ranges::find_if(states, waits);
  // The one that reported it does not answer any more: then the question is what another one waits for.
  if (states[trigger.reporter].standing != Liveness::here && other != states.end())
    trigger = {static_cast<std::uint32_t>(other - states.begin()), calls::Watchdog::anyone, false, {}};
  const auto& members = current.watch->members();
  const bool is_part = members.size() < host_.size();
  Diagnosis found = diagnose(states, trigger, is_part ? trace::name_of_members(members) : "");
  LossReason reason = {{found.code, std::move(found.message)}, {}, found.subject};
  for (std::uint32_t rank = 0; rank < states.size(); ++rank) {
    if (states[rank].standing == Liveness::silent) reason.silent.push_back(rank);
  }
  say_once(reason.error.message);
  spread(current.watch, reason, current.silent, nobody);
}

// ---- diagnoses ----
void FailureDetector::announce(const std::shared_ptr<CommWatch>& watch, const Error& diagnosis, bool print) {
  allow_for_a_stop();
  if (watch->is_lost()) return;
  if (print) say_once(diagnosis.message);
  const Case* const current = find(watch->id());
  spread(watch, {diagnosis, {}, {}}, current != nullptr ? current->silent : Ranks(), nobody);
}

/// Printed and sent before this rank is released: the program may end the moment it learns of the error.
void FailureDetector::spread(const std::shared_ptr<CommWatch>& watch, const LossReason& diagnosis, Ranks left_out,
                             std::uint32_t from) {
  if (watch->is_lost()) return;
  const Case* const current = find(watch->id());
  Spreading spreading;
  spreading.watch = watch;
  spreading.tree =
      current != nullptr ? current->tree : std::make_shared<const CommTree>(host_.table(), watch->members());
  spreading.diagnosis = diagnosis;
  spreading.silent = std::move(left_out);
  for (const std::uint32_t rank : diagnosis.silent) silent_.insert(watch->members()[rank]);
  tell(spreading, from);
  if (from == nobody) {  // those that do not answer find it when they go on
    for (const std::uint32_t rank : spreading.silent) {
      if (rank != host_.rank()) host_.send_to(rank, diagnosis_frame(*watch, diagnosis, {}));
    }
  }
  spreading_.push_back(std::move(spreading));
  watch->give_diagnosis(diagnosis.error, diagnosis.silent, diagnosis.subject);
}

void FailureDetector::tell(Spreading& spreading, std::uint32_t from) {
  const auto is_out = out_of(spreading.silent);
  auto neighbours = spreading.tree->children_of(host_.rank(), is_out);
  if (const auto parent = spreading.tree->parent_of(host_.rank(), is_out)) neighbours.push_back(*parent);
  spreading.told.insert(from);
  const std::string frame = diagnosis_frame(*spreading.watch, spreading.diagnosis, listed(spreading.silent));
  for (const std::uint32_t rank : neighbours) {
    if (!spreading.told.insert(rank).second) continue;
    spreading.waits_for[rank] = host_.now();
    host_.send_to(rank, frame);
  }
}

void FailureDetector::on_diagnosis(std::uint32_t from, const std::shared_ptr<CommWatch>& watch, Frame& frame) {
  allow_for_a_stop();
  const auto code = static_cast<Errc>(frame.number());
  std::string sentence = frame.text();
  const auto left_out = read_ranks(frame, host_.size());
  if (!watch) return;
  auto silent = read_ranks(frame, static_cast<std::uint32_t>(watch->members().size()));
  ErrorSubject subject;
  subject.rank = static_cast<std::int32_t>(static_cast<std::uint32_t>(frame.number()));
  subject.operation = static_cast<calls::Operation>(frame.number());
  subject.number = frame.number();
  if (subject.rank >= static_cast<std::int64_t>(watch->members().size())) subject.rank = -1;
  if (frame.is_short()) return;
  const std::uint64_t wrong = frame.number();  // 0 from releases that do not tell
  if (wrong <= watch->members().size()) subject.wrong = static_cast<std::uint32_t>(wrong);
  send_heard(from, watch->id(), FrameKind::diagnosis);
  said_.push_back(sentence);
  Ranks out(left_out.begin(), left_out.end());
  out.erase(host_.rank());
  spread(watch, {{code, std::move(sentence)}, std::move(silent), subject}, std::move(out), from);
}

void FailureDetector::send_heard(std::uint32_t to, std::uint64_t id, FrameKind what) {
  host_.send_to(to, FrameWriter(FrameKind::heard).number(id).number(static_cast<std::uint64_t>(what)).take());
}

// ---- time ----
/// After a stop of the whole job the others, too, have their time to answer once more. Whatever comes from outside asks
/// this first: a time that is taken after the stop must not be put off by it.
void FailureDetector::allow_for_a_stop() {
  const auto missed = observed_.missed(host_.now());
  if (missed == Clock::duration::zero()) return;
  for (const auto& current : cases_) {
    for (Clock::time_point* each :
         {&current->told_at, &current->until, &current->asked_at, &current->answered_at, &current->gone_at})
      *each += missed;
    for (auto& [rank, asked] : current->asked) asked.since += missed;
  }
  for (Spreading& each : spreading_) {
    for (auto& [rank, since] : each.waits_for) since += missed;
  }
}

/// Where this thread gets its turn late, those of other ranks do, too.
void FailureDetector::watch_own_lag() {
  constexpr milliseconds a_stop(250);
  const auto late = host_.now() - polled_ - step_;
  if (polled_ == Clock::time_point()) lag_ = {};
  else if (late < a_stop) lag_ = std::max(lag_, late);
  const bool is_busy = !cases_.empty() || !spreading_.empty();
  polled_ = is_busy ? host_.now() : Clock::time_point();
}

/// A rank that has heard something must read it, and the other one the answer; either may wait for others before.
Clock::duration FailureDetector::with_lag(milliseconds time) const noexcept { return time + lag_ * 4; }

void FailureDetector::poll() {
  allow_for_a_stop();
  watch_own_lag();
  for (const auto& current : cases_) {
    if (current->watch->is_lost()) continue;
    poll_rising(*current);
    poll_asking(*current);
  }
  std::erase_if(cases_, [this](const auto& current) {
    const bool is_over = !current->trigger && host_.now() >= current->until + current->grace * 4;
    return current->watch->is_lost() || is_over;
  });
  constexpr milliseconds patience(100);
  for (Spreading& each : spreading_) {
    std::vector<std::uint32_t> deaf;
    for (const auto& [rank, since] : each.waits_for) {
      if (host_.now() >= since + with_lag(patience) || is_gone(rank)) deaf.push_back(rank);
    }
    for (const std::uint32_t rank : deaf) {
      each.waits_for.erase(rank);
      leave_out(*each.tree, each.silent, rank);
    }
    if (!deaf.empty()) tell(each, nobody);
  }
  std::erase_if(spreading_, [](const Spreading& each) { return each.waits_for.empty(); });
}

Clock::time_point FailureDetector::next_poll() const {
  const bool is_busy = !cases_.empty() || !spreading_.empty();
  return is_busy ? host_.now() + step_ : Clock::time_point::max();
}

// ---- words ----
std::string diagnosis_frame(const CommWatch& watch, const LossReason& diagnosis,
                            const std::vector<std::uint32_t>& left_out) {
  FrameWriter writer(FrameKind::diagnosis);
  writer.number(watch.id()).number(static_cast<std::uint64_t>(diagnosis.error.code)).text(diagnosis.error.message);
  write_ranks(writer, left_out);
  write_ranks(writer, diagnosis.silent);
  writer.number(static_cast<std::uint32_t>(diagnosis.subject.rank))
      .number(static_cast<std::uint64_t>(diagnosis.subject.operation))
      .number(diagnosis.subject.number)
      .number(diagnosis.subject.wrong);
  return writer.take();
}

void FailureDetector::say_once(const std::string& sentence) {
  if (std::ranges::find(said_, sentence) != said_.end()) return;
  said_.push_back(sentence);
  host_.say(sentence);
}

}  // namespace amldist::world
