#include "world/control/diagnosis.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/text/text.hpp"
#include "trace/diagnosis/hang_diagnosis.hpp"

namespace amldist::world {
namespace {

using calls::Operation;
using text::concat;
using trace::recorder_format::State;
using Kind = trace::HangDiagnosis::Kind;
using Why = trace::MissingRank::Why;

bool is_present(const RankState& rank) { return rank.standing == Liveness::here; }

std::string name_of(const RankState& rank) {
  return trace::describe_rank(rank.place.rank, rank.place.local_rank, rank.place.host);
}

// ---- the ranks' answers as recordings ----
trace::CallRecord record_of(const calls::Call& call, State state, std::uint32_t digest = 0) {
  trace::CallRecord record;
  record.sequence = call.sequence;
  record.bytes = call.count * size_of(call.type);
  record.peer = trace::recorder_format::peer_of(call);
  record.state = state;
  record.operation = call.operation;
  record.type = call.type;
  if (is_reduction(call.operation)) record.reduction = call.redop;
  record.digest = digest;
  return record;
}

/// The call that a rank is in, or was in last. A group of messages is described by its last one, but may wait for
/// another rank: then it is only known with whom.
trace::CallRecord current_call(const Activity& activity) {
  trace::CallRecord record = record_of(activity.call, activity.inside ? State::started : State::completed);
  const bool waits_elsewhere = activity.waits_for != calls::Watchdog::anyone && activity.waits_for != record.peer;
  if (!is_point_to_point(activity.call.operation) || !waits_elsewhere) return record;
  record.peer = activity.waits_for;
  record.bytes = 0;
  record.operation = trace::recorder_format::other::sendrecv;
  return record;
}

/// `parting`: the number of a call on which ranks differ in whatever it be.
std::vector<trace::CallRecord> calls_of(const RankState& rank, std::optional<std::uint64_t> parting) {
  const Activity& activity = rank.activity;
  const bool is_message = is_point_to_point(activity.call.operation);
  std::vector<trace::CallRecord> records;
  records.reserve(rank.past.size() + 1);
  bool is_known = activity.call.sequence == 0;
  for (const PastCall& one : rank.past) {
    const std::uint64_t number = one.call.sequence;
    const bool is_current = !is_message && number == activity.call.sequence;
    const bool is_later = number > activity.sequence;  // a device is still in an earlier one
    is_known |= is_current;
    records.push_back(record_of(one.call,
                                is_current && activity.inside ? State::started
                                : is_later                    ? State::enqueued
                                                              : State::completed,
                                number == parting ? one.signature() : 0));
    records.back().ticket = number;
  }
  if (is_known) return records;
  const auto later = std::ranges::upper_bound(records, activity.sequence, {}, &trace::CallRecord::ticket);
  const auto own = records.insert(is_message ? records.end() : later, current_call(activity));
  own->ticket = own == records.begin() ? 1 : std::prev(own)->ticket + 1;
  return records;
}

/// What a rank that has not come does instead.
std::string remark_on(const RankState& rank) {
  if (rank.standing == Liveness::unaware) return "it does not have this communicator (not yet, or not any more)";
  if (!is_present(rank)) return {};
  if (rank.activity.call.sequence == 0 && !rank.activity.inside) return "it has made no call yet";
  const std::string_view what = rank.activity.inside ? "it is in " : "its last call was ";
  return concat({what, describe_call(current_call(rank.activity))});
}

trace::Recording recording_of(const RankState& rank, const trace::CommunicatorRecord& communicator,
                              std::optional<std::uint64_t> parting) {
  trace::Recording out;
  out.host = rank.place.host;
  out.source = "amldist";
  out.rank = rank.place.rank;
  out.local_rank = rank.place.local_rank;
  const bool runs = is_present(rank) || rank.standing == Liveness::unaware;
  out.writer = runs                                ? trace::Writer::runs
               : rank.standing == Liveness::silent ? trace::Writer::silent
                                                   : trace::Writer::gone;
  if (rank.standing == Liveness::left) out.ending = trace::recorder_format::Ending::well;
  out.remark = remark_on(rank);
  out.communicators.push_back(communicator);
  if (!is_present(rank)) return out;
  out.calls = calls_of(rank, parting);
  std::uint64_t& entered = out.communicators.back().entered;
  entered = rank.activity.sequence;
  for (const PastCall& one : rank.past) entered = std::max(entered, one.call.sequence);
  return out;
}

std::vector<trace::Recording> recordings_of(std::span<const RankState> ranks, const std::string& group) {
  std::uint64_t finalize = 0;
  for (const RankState& rank : ranks) {
    if (is_present(rank) && rank.activity.call.operation == Operation::finalize) finalize = rank.activity.sequence;
  }
  std::vector<trace::Recording> recordings;
  recordings.reserve(ranks.size());
  const auto parting = parting_of(ranks);
  trace::CommunicatorRecord communicator;
  communicator.size = static_cast<std::uint32_t>(ranks.size());
  communicator.name = group;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    communicator.rank = static_cast<std::uint32_t>(i);
    communicator.entered = ranks[i].standing == Liveness::left ? finalize : 0;
    recordings.push_back(recording_of(ranks[i], communicator, parting));
  }
  return recordings;
}

/// Before the first numbered call, as in amldist_init(), nobody can be behind: who does not answer, has ended or is not
/// there yet is missing.
std::optional<trace::HangDiagnosis> diagnose_start(std::span<const RankState> ranks,
                                                   std::span<const trace::Recording> recordings,
                                                   const calls::Call& call) {
  trace::HangDiagnosis found;
  found.stall.communicator_name = recordings.front().communicators.front().name;
  found.stall.call = record_of(call, State::started);
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const Liveness standing = ranks[i].standing;
    const Why why = standing == Liveness::unaware  ? Why::never_called
                    : standing == Liveness::silent ? Why::stopped
                                                   : Why::gone;
    if (is_present(ranks[i])) found.waits.push_back(recordings[i].rank);
    else found.stall.missing.push_back({why, recordings[i].rank, &recordings[i]});
  }
  const auto& missing = found.stall.missing;
  const auto has = [&](Why why) { return std::ranges::find(missing, why, &trace::MissingRank::why) != missing.end(); };
  found.kind = has(Why::gone) ? Kind::dead : has(Why::stopped) ? Kind::stopped : Kind::not_come;
  return missing.empty() ? std::nullopt : std::optional(std::move(found));
}

// ---- sentences about what only the ranks know ----
ErrorSubject subject_of(std::optional<std::size_t> rank, const calls::Call& call) {
  return {rank ? static_cast<std::int32_t>(*rank) : -1, call.operation, call.sequence};
}

/// "recv #3 (25 float32, 100 bytes) from rank 1 of group 'ranks 0-3': " before the other words.
std::string about(const calls::Call& call, const std::string& group, std::string_view words) {
  trace::Stall stall;
  stall.communicator_name = group;
  stall.call = record_of(call, State::started);
  return concat({call_of_group(stall), ": ", words});
}

/// Two ranks met in different calls, and one of them has gone on meanwhile. The rank that fewer others agree with made
/// the wrong call (of two ranks, the one that is ahead). A root that only sends, for example, has ended its call before
/// any other rank notices.
Diagnosis diagnose_two(std::span<const RankState> ranks, const DiagnosisTrigger& trigger, const std::string& group) {
  const auto partner = static_cast<std::size_t>(trigger.waits_for);
  const RankState& other = ranks[partner];
  const RankState& reporter = ranks[trigger.reporter];
  const calls::Call& call = reporter.activity.call;
  if (is_point_to_point(call.operation))
    return {Errc::peer, about(call, group, concat({name_of(other), " sends another message"})),
            subject_of(partner, call)};
  const auto beside = [&](const RankState& rank) {
    return std::ranges::count_if(ranks, [&](const RankState& each) {
      return is_present(each) && each.activity.sequence == rank.activity.sequence;
    });
  };
  const bool is_ahead = reporter.activity.sequence > other.activity.sequence;
  const bool is_reporter =
      is_present(other) && (beside(reporter) < beside(other) || (beside(reporter) == beside(other) && is_ahead));
  const calls::Call& right = (is_reporter ? other : reporter).activity.call;
  return {Errc::peer, about(right, group, concat({name_of(is_reporter ? reporter : other), " made another call"})),
          subject_of(is_reporter ? trigger.reporter : partner, right)};
}

/// One rank sends another a number of elements that it does not expect. The rank that is in most such pairs called with
/// other counts; where both of a pair are in as many, either may be wrong.
std::optional<Diagnosis> diagnose_pairs(std::span<const RankState> ranks, const calls::Call& call,
                                        const std::string& group) {
  struct Pair {
    std::size_t from;
    std::size_t to;
  };
  std::vector<Pair> wrong;
  std::vector<std::size_t> times(ranks.size());
  const auto knows = [&](std::size_t i) {
    const PairCounts& pairs = ranks[i].pairs;
    return is_present(ranks[i]) && pairs.sequence == call.sequence && pairs.gives.size() == ranks.size() &&
           pairs.takes.size() == ranks.size();
  };
  for (std::size_t a = 0; a < ranks.size(); ++a) {
    for (std::size_t b = 0; knows(a) && b < ranks.size(); ++b) {
      if (!knows(b) || ranks[a].pairs.gives[b] == ranks[b].pairs.takes[a]) continue;
      wrong.push_back({a, b});
      ++times[a];
      ++times[b];
    }
  }
  if (wrong.empty() || call.operation != Operation::alltoallv) return std::nullopt;
  const auto worst = static_cast<std::size_t>(std::ranges::max_element(times) - times.begin());
  const auto [from, to] =
      *std::ranges::find_if(wrong, [&](const Pair& pair) { return pair.from == worst || pair.to == worst; });
  const std::size_t culprit = times[from] >= times[to] ? from : to;
  const std::string blame = times[from] == times[to] ? "" : name_of(ranks[culprit]) + " called it with other counts: ";
  const std::string words =
      concat({blame, name_of(ranks[from]), " gives ", std::to_string(ranks[from].pairs.gives[to]), " elements, ",
              name_of(ranks[to]), " expects ", std::to_string(ranks[to].pairs.takes[from])});
  ErrorSubject subject = subject_of(culprit, call);
  subject.wrong = blame.empty() ? 2 : 1;
  return Diagnosis{Errc::peer, about(call, group, words), subject};
}

/// " (rank 1 waits for rank 0)", for the first few ranks that know for whom they wait.
std::string waits_of(std::span<const RankState> ranks) {
  constexpr std::size_t most = 4;
  std::vector<std::string> clauses;
  for (const RankState& rank : ranks) {
    const int other = rank.activity.waits_for;
    const bool waits = is_present(rank) && rank.activity.inside && other >= 0 && std::cmp_less(other, ranks.size());
    if (!waits || clauses.size() == most) continue;
    clauses.push_back(concat({"rank ", std::to_string(rank.place.rank), " waits for rank ",
                              std::to_string(ranks[static_cast<std::size_t>(other)].place.rank)}));
  }
  const std::vector<std::string_view> views(clauses.begin(), clauses.end());
  return views.empty() ? "" : concat({" (", text::join(views), ")"});
}

/// All are in the call. A rank that cannot connect says why.
Diagnosis diagnose_no_absence(std::span<const RankState> ranks, const DiagnosisTrigger& trigger,
                              const std::string& group) {
  const calls::Call& call = ranks[trigger.reporter].activity.call;
  const std::string_view cause = trigger.detail.empty() ? "is the deadline too short for it, or the network stuck?"
                                                        : std::string_view(trigger.detail);
  return {Errc::timeout,
          about(call, group,
                concat({"no rank is missing, but it did not end before the deadline", waits_of(ranks), ": ", cause})),
          subject_of(std::nullopt, call)};
}

std::optional<Diagnosis> diagnose_trouble(std::span<const RankState> ranks, const std::string& group) {
  const auto found = std::ranges::find_if(
      ranks, [](const RankState& rank) { return is_present(rank) && rank.activity.inside && !rank.trouble.empty(); });
  if (found == ranks.end()) return std::nullopt;
  const calls::Call& call = found->activity.call;
  return Diagnosis{Errc::timeout, about(call, group, concat({name_of(*found), " ", found->trouble})),
                   subject_of(std::nullopt, call)};
}

/// The core's. A death is told at once: ranks that have not come may only be on their way.
Diagnosis to_diagnosis(trace::HangDiagnosis found) {
  auto& missing = found.stall.missing;
  const bool is_lost = found.kind == Kind::dead || found.kind == Kind::stopped;
  if (is_lost) std::erase_if(missing, [](const trace::MissingRank& each) { return each.why == Why::never_called; });
  const bool blames = found.kind != Kind::deadlock && found.kind != Kind::slow && !found.stall.is_tie;
  const bool is_final = found.kind == Kind::dead || found.kind == Kind::wrong_call;
  ErrorSubject subject = {-1, found.stall.call.operation, found.stall.call.sequence};
  if (blames) subject.rank = static_cast<std::int32_t>(missing.front().recording->communicators.front().rank);
  if (found.kind == Kind::wrong_call) subject.wrong = static_cast<std::uint32_t>(missing.size());
  return {is_final ? Errc::peer : Errc::timeout, sentence(found, 0), subject};
}

}  // namespace

std::optional<std::uint64_t> parting_of(std::span<const RankState> ranks) {
  std::map<std::uint64_t, std::uint32_t> seen;  // signatures by number
  std::optional<std::uint64_t> lowest;
  for (const RankState& rank : ranks) {
    if (!is_present(rank)) continue;
    for (const PastCall& one : rank.past) {
      const auto [first, is_new] = seen.try_emplace(one.call.sequence, one.signature());
      if (!is_new && first->second != one.signature())
        lowest = std::min(lowest.value_or(one.call.sequence), one.call.sequence);
    }
  }
  return lowest;
}

Diagnosis diagnose(std::span<const RankState> ranks, const DiagnosisTrigger& trigger, const std::string& group) {
  const RankState& reporter = ranks[trigger.reporter];
  const bool is_other_message = trigger.differs && is_point_to_point(reporter.activity.call.operation);
  if (is_other_message && trigger.waits_for >= 0) return diagnose_two(ranks, trigger, group);
  const auto recordings = recordings_of(ranks, group);
  const auto found = reporter.activity.call.sequence == 0 ? diagnose_start(ranks, recordings, reporter.activity.call)
                                                          : trace::diagnose_hang(recordings, reporter.place.rank);
  if (found && found->kind == Kind::wrong_call) return to_diagnosis(*found);
  if (trigger.differs) {
    if (auto diagnosis = diagnose_pairs(ranks, reporter.activity.call, group)) return *diagnosis;
    if (trigger.waits_for >= 0) return diagnose_two(ranks, trigger, group);
  }
  const bool is_sure = found && found->kind != Kind::slow && found->kind != Kind::deadlock;
  if (is_sure) return to_diagnosis(*found);
  if (auto diagnosis = diagnose_trouble(ranks, group)) return *diagnosis;
  return found ? to_diagnosis(*found) : diagnose_no_absence(ranks, trigger, group);
}

}  // namespace amldist::world
