#include "collective/control/failure_detector.hpp"

#include <algorithm>

#include "core/text.hpp"

namespace amldist::collective {
namespace {

using std::chrono::milliseconds;
using text::concat;

/// How often ranks are asked again that have not reached the call in question yet.
constexpr milliseconds ask_again(20);

void write_call(FrameWriter& writer, const Call& call) {
  writer.number(static_cast<std::uint64_t>(call.operation))
      .number(static_cast<std::uint64_t>(call.type))
      .number(static_cast<std::uint64_t>(call.redop))
      .number(static_cast<std::uint32_t>(call.root))
      .number(call.count)
      .number(call.sequence);
}

Call read_call(Frame& frame) {
  Call call;
  call.operation = static_cast<Operation>(frame.number());
  call.type = static_cast<DataType>(frame.number());
  call.redop = static_cast<ReduceOp>(frame.number());
  call.root = static_cast<int>(static_cast<std::uint32_t>(frame.number()));
  call.count = frame.number();
  call.sequence = frame.number();
  return call;
}

void write_list(FrameWriter& writer, const std::vector<std::uint64_t>& list) {
  writer.number(list.size());
  for (const std::uint64_t each : list) writer.number(each);
}

std::vector<std::uint64_t> read_list(Frame& frame) {
  std::vector<std::uint64_t> list;
  const std::uint64_t size = frame.number();
  while (list.size() < size && !frame.is_short()) list.push_back(frame.number());
  return list;
}

/// The state that a rank reports of itself.
void write_state(FrameWriter& writer, const CommWatch& watch) {
  const Activity activity = watch.activity();
  writer.number(activity.sequence)
      .number(activity.inside ? 1 : 0)
      .number(static_cast<std::uint32_t>(activity.waits_for));
  write_call(writer, activity.call);
  const auto past = watch.past();
  writer.number(past.size());
  for (const PastCall& one : past) {
    write_call(writer, one.call);
    writer.number(one.lists);
  }
  const PairCounts pairs = watch.pair_counts();
  writer.number(pairs.sequence);
  write_list(writer, pairs.gives);
  write_list(writer, pairs.takes);
}

RankState read_state(Frame& frame) {
  RankState state;
  state.standing = Liveness::here;
  state.activity.sequence = frame.number();
  state.activity.inside = frame.number() != 0;
  state.activity.waits_for = static_cast<int>(static_cast<std::uint32_t>(frame.number()));
  state.activity.call = read_call(frame);
  const std::uint64_t calls = frame.number();
  while (state.past.size() < calls && !frame.is_short()) {
    const Call call = read_call(frame);
    state.past.push_back({call, static_cast<std::uint32_t>(frame.number())});
  }
  state.pairs.sequence = frame.number();
  state.pairs.gives = read_list(frame);
  state.pairs.takes = read_list(frame);
  return state;
}

}  // namespace

std::string status_frame(std::uint64_t communicator, const CommWatch* watch) {
  FrameWriter answer(FrameKind::status);
  answer.number(communicator).number(watch != nullptr ? 1 : 0);
  if (watch != nullptr) write_state(answer, *watch);
  return answer.take();
}

std::string verdict_frame(const CommWatch& watch, const Error& verdict, const std::vector<std::uint32_t>& silent) {
  FrameWriter frame(FrameKind::verdict);
  frame.number(watch.id()).number(static_cast<std::uint64_t>(verdict.code)).text(verdict.message).number(silent.size());
  for (const std::uint32_t rank : silent) frame.number(rank);
  return frame.take();
}

std::string take_verdict(CommWatch* watch, Frame& frame) {
  const auto code = static_cast<Errc>(frame.number());
  std::string sentence = frame.text();
  if (watch == nullptr) return sentence;
  std::vector<std::uint32_t> silent;
  for (const std::uint64_t rank : read_list(frame)) {
    if (rank < watch->members().size()) silent.push_back(static_cast<std::uint32_t>(rank));
  }
  watch->give_verdict({code, sentence}, std::move(silent));
  return sentence;
}

void FailureDetector::open(const std::shared_ptr<CommWatch>& watch, const DiagnosisTrigger& trigger, milliseconds grace,
                           bool asked) {
  if (watch->is_lost()) return;
  for (Case& current : cases_) {
    if (current.watch != watch) continue;
    if (asked && !current.coordinating) coordinate(current);  // two believe that it is our turn
    return;
  }
  cases_.push_back({watch, trigger, grace, Clock::now(), 0, false, {}, {}});
  if (asked) coordinate(cases_.back());
  else report(cases_.back());
}

/// Reports to the lowest rank that has not been found silent.
void FailureDetector::report(Case& current) {
  const CommWatch& watch = *current.watch;
  while (current.candidate < watch.rank() && is_gone(watch.members()[current.candidate])) ++current.candidate;
  if (current.candidate >= watch.rank()) return coordinate(current);
  FrameWriter report(FrameKind::report);
  report.number(watch.id())
      .number(current.trigger.reporter)
      .number(static_cast<std::uint64_t>(static_cast<std::int64_t>(current.trigger.waits_for)))
      .number(current.trigger.differs ? 1 : 0)
      .number(static_cast<std::uint64_t>(current.grace.count()))
      .text(current.trigger.detail);
  host_.send_to(watch.members()[current.candidate], report.take());
  current.next = Clock::now() + current.grace * 2;  // it has patience of its own with those whom it asks
}

void FailureDetector::coordinate(Case& current) {
  const CommWatch& watch = *current.watch;
  current.coordinating = true;
  current.answers.assign(watch.members().size(), std::nullopt);
  current.next = Clock::now() + current.grace;
  ask(current);
}

/// Asks the ranks that have not answered.
void FailureDetector::ask(Case& current) {
  const CommWatch& watch = *current.watch;
  current.asked = Clock::now();
  for (std::size_t i = 0; i < watch.members().size(); ++i) {
    if (current.answers[i]) continue;
    if (i == watch.rank()) {
      current.answers[i] =
          RankState{name_of(watch, i), Liveness::here, watch.activity(), {}, watch.past(), watch.pair_counts()};
    } else {
      host_.send_to(watch.members()[i], FrameWriter(FrameKind::query).number(watch.id()).take());
    }
  }
}

/// Whether all ranks have reported what the verdict needs. Where two calls differ, all ranks must have reached that
/// call: the majority decides which one is wrong.
bool FailureDetector::is_answered(Case& current) {
  const auto& members = current.watch->members();
  for (std::size_t r = 0; r < current.answers.size(); ++r) {
    if (!current.answers[r] && !is_gone(members[r])) return false;
  }
  const auto& reporter = current.answers[current.trigger.reporter];
  if (!current.trigger.differs || !reporter || is_point_to_point(reporter->activity.call.operation)) return true;
  const std::uint64_t reached = parting_of(states_of(current)).value_or(reporter->activity.sequence);
  bool all = true;
  for (std::size_t r = 0; r < current.answers.size(); ++r) {
    auto& answer = current.answers[r];
    if (!answer || is_gone(members[r]) || answer->activity.sequence >= reached) continue;
    all = false;
    if (Clock::now() >= current.asked + ask_again) answer.reset();
  }
  if (!all && Clock::now() >= current.asked + ask_again) ask(current);
  return all;
}

void FailureDetector::poll() {
  std::erase_if(cases_, [](const Case& current) { return current.watch->is_lost(); });
  for (std::size_t i = 0; i < cases_.size(); ++i) {
    Case& current = cases_[i];
    if (current.coordinating) {
      if (is_answered(current) || Clock::now() >= current.next) conclude(current);
    } else if (Clock::now() >= current.next || is_gone(current.watch->members()[current.candidate])) {
      ++current.candidate;
      report(current);
    }
  }
  std::erase_if(cases_, [](const Case& current) { return current.watch->is_lost(); });
}

RankState FailureDetector::presumed_state(const CommWatch& watch, std::size_t rank) const {
  return {name_of(watch, rank), host_.end_of(watch.members()[rank]).value_or(Liveness::silent), {}, {}, {}, {}};
}

std::vector<RankState> FailureDetector::states_of(const Case& current) const {
  std::vector<RankState> states;
  for (std::size_t i = 0; i < current.answers.size(); ++i) {
    const bool gone = is_gone(current.watch->members()[i]);
    states.push_back(current.answers[i] && !gone ? *current.answers[i] : presumed_state(*current.watch, i));
  }
  return states;
}

void FailureDetector::conclude(Case& current) {
  const auto states = states_of(current);
  std::vector<std::uint32_t> silent;
  for (std::uint32_t rank = 0; rank < states.size(); ++rank) {
    if (states[rank].standing == Liveness::silent) silent.push_back(rank);
  }
  announce(current.watch, judge(states, current.trigger), true, silent);
}

void FailureDetector::announce(const std::shared_ptr<CommWatch>& watch, const Error& verdict, bool print,
                               const std::vector<std::uint32_t>& silent) {
  if (watch->is_lost()) return;
  // Printed before any rank is released: the program may end the moment it learns of the error.
  if (print) say_once(verdict.message);
  const std::string frame = verdict_frame(*watch, verdict, silent);
  for (const std::uint32_t member : watch->members()) {
    if (member != host_.rank()) host_.send_to(member, frame);
  }
  watch->give_verdict(verdict, silent);
}

void FailureDetector::say_once(const std::string& sentence) {
  if (std::ranges::find(said_, sentence) != said_.end()) return;
  said_.push_back(sentence);
  host_.say(sentence);
}

std::string FailureDetector::name_of(const CommWatch& watch, std::size_t rank) const {
  const std::uint32_t world_rank = watch.members()[rank];
  const std::string& host = host_.host_of(world_rank);
  if (watch.members().size() == host_.size()) return concat({"rank ", std::to_string(rank), " (", host, ")"});
  return concat({"rank ", std::to_string(rank), " (", host, ", rank ", std::to_string(world_rank), " of the world)"});
}

void FailureDetector::take_status(std::uint32_t world_rank, Frame& frame) {
  const std::uint64_t id = frame.number();
  RankState state;
  if (frame.number() != 0) state = read_state(frame);
  else state.standing = Liveness::unaware;
  for (Case& current : cases_) {
    if (current.watch->id() != id || !current.coordinating) continue;
    const auto& members = current.watch->members();
    const auto at = static_cast<std::size_t>(std::ranges::find(members, world_rank) - members.begin());
    if (at == members.size()) continue;
    state.name = name_of(*current.watch, at);
    current.answers[at] = state;
  }
}

Clock::time_point FailureDetector::next_poll() const {
  auto next = Clock::time_point::max();
  for (const Case& current : cases_) {
    next = std::min(next, current.coordinating ? std::min(current.next, current.asked + ask_again) : current.next);
  }
  return next;
}

}  // namespace amldist::collective
