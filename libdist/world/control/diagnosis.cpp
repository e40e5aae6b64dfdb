#include "world/control/diagnosis.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/text/text.hpp"

namespace amldist::world {
namespace {

using text::concat;

/// "rank 3 (node2) is" or "rank 3 (node2), rank 5 (node3) are"; at most eight names.
std::string names_of(std::span<const RankState> ranks, const std::vector<std::size_t>& which) {
  constexpr std::size_t most = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(which.size(), most); ++i) {
    text += concat({i == 0 ? "" : ", ", ranks[which[i]].name});
  }
  if (which.size() > most) text += concat({" and ", std::to_string(which.size() - most), " more"});
  return text + (which.size() == 1 ? " is" : " are");
}

bool is_present(const RankState& rank) { return rank.standing == Liveness::here; }

/// The rank that a rank waits for in a send or a receive.
std::optional<std::size_t> partner_of(std::span<const RankState> ranks, std::size_t rank) {
  const Activity& activity = ranks[rank].activity;
  if (!is_present(ranks[rank]) || !activity.inside || !is_point_to_point(activity.call.operation)) return std::nullopt;
  const int partner = activity.waits_for != calls::Watchdog::anyone ? activity.waits_for : activity.call.root;
  if (partner < 0 || !std::cmp_less(partner, ranks.size()) || std::cmp_equal(partner, rank)) return std::nullopt;
  return static_cast<std::size_t>(partner);
}

/// Of a message, also with whom: two ranks may wait for each other.
std::string current_call(std::span<const RankState> ranks, std::size_t rank) {
  const calls::Call& call = ranks[rank].activity.call;
  const auto partner = partner_of(ranks, rank);
  if (!partner) return describe(call);
  const bool is_other_one = !std::cmp_equal(*partner, call.root);  // a group is described by its last message
  const std::string_view way = is_other_one                               ? ", waiting for "
                               : call.operation == calls::Operation::send ? " to "
                                                                          : " from ";
  return concat({describe(call), way, ranks[*partner].name});
}

std::string reason(std::span<const RankState> ranks, std::size_t which, const Activity& stuck) {
  const RankState& rank = ranks[which];
  switch (rank.standing) {
    case Liveness::silent:
      return "it does not answer (stopped, or its node is gone)";
    case Liveness::dead:
      return rank.detail.empty() ? "its process has ended" : rank.detail;
    case Liveness::left:
      return "it has finalized the communicator";
    case Liveness::unaware:
      return "it does not have this communicator (not yet, or not any more)";
    case Liveness::here:
      break;
  }
  if (rank.activity.inside) return concat({"it is still in ", current_call(ranks, which)});
  if (rank.activity.call.sequence == 0) return "it has made no call yet";
  if (is_point_to_point(stuck.call.operation)) {
    return concat({"it is in no call; its last was ", describe(rank.activity.call)});
  }
  return concat({"it has not called it; its last call was ", describe(rank.activity.call)});
}

/// The lowest numbered collective that any rank is in, or `lowest`.
const Activity& lowest_collective(std::span<const RankState> ranks, const Activity& start) {
  const Activity* lowest = &start;
  for (const RankState& rank : ranks) {
    const bool waits = is_present(rank) && rank.activity.inside && !is_point_to_point(rank.activity.call.operation);
    if (waits && rank.activity.sequence < lowest->sequence) lowest = &rank.activity;
  }
  return *lowest;
}

/// The end of a chain of ranks, each of which waits for a message of the next; `from` where the chain is a cycle.
std::size_t end_of_chain(std::span<const RankState> ranks, std::size_t from) {
  std::size_t end = from;
  for (std::size_t steps = 0; steps <= ranks.size(); ++steps) {
    const auto next = partner_of(ranks, end);
    if (!next) return end;
    end = *next;
  }
  return from;
}

/// A call that cannot end, and the ranks that are not in it.
struct Absence {
  const Activity* stuck = nullptr;
  std::vector<std::size_t> missing;
  std::optional<std::size_t> waiter;  ///< whose message it is, where that matters
};

/// The ranks that have not reached a collective, without those that wait for a message of one of them.
std::vector<std::size_t> missing_ranks(std::span<const RankState> ranks, const Activity& stuck) {
  std::vector<std::size_t> missing;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const bool through = ranks[i].standing == Liveness::left && stuck.call.operation == calls::Operation::finalize;
    const bool absent = !is_present(ranks[i]) || ranks[i].activity.sequence < stuck.sequence;
    if (absent && !through) missing.push_back(i);
  }
  // A dead rank explains why others are missing: they may wait for it elsewhere.
  const auto is_gone = [&](std::size_t i) {
    return ranks[i].standing == Liveness::dead || ranks[i].standing == Liveness::silent;
  };
  if (std::ranges::any_of(missing, is_gone)) std::erase_if(missing, [&](std::size_t i) { return !is_gone(i); });
  const std::vector<std::size_t> all = missing;
  std::erase_if(missing, [&](std::size_t i) {
    const auto partner = partner_of(ranks, i);
    return partner && end_of_chain(ranks, i) != i && std::ranges::find(all, *partner) != all.end();
  });
  return missing;
}

/// The reporter waits for a message of a rank that is missing, waits for another message itself, or is in a collective
/// that waits for other ranks.
Absence absence_from_message(std::span<const RankState> ranks, const DiagnosisTrigger& trigger) {
  const auto partner = static_cast<std::size_t>(trigger.waits_for);
  std::size_t waiter = trigger.reporter;
  const std::size_t end = end_of_chain(ranks, partner);
  for (std::size_t i = partner; i != end; i = *partner_of(ranks, i)) waiter = i;
  const Activity& last = ranks[end].activity;
  if (is_present(ranks[end]) && last.inside && !is_point_to_point(last.call.operation)) {
    const Activity& stuck = lowest_collective(ranks, last);
    std::vector<std::size_t> missing = missing_ranks(ranks, stuck);
    std::vector<std::size_t> others = missing;
    std::erase_if(others, [&](std::size_t i) { return end_of_chain(ranks, i) == end; });
    if (!others.empty()) return {&stuck, std::move(others), {}};
    // Where two groups wait for each other in different calls, the smaller group is in the wrong one.
    const auto waiting = static_cast<std::size_t>(std::ranges::count_if(ranks, [&](const RankState& rank) {
      return is_present(rank) && rank.activity.inside && rank.activity.call.sequence == stuck.sequence &&
             !is_point_to_point(rank.activity.call.operation);
    }));
    if (!missing.empty() && waiting > missing.size()) return {&stuck, std::move(missing), {}};
  }
  // A rank in another call may be right: then the rank that waits made the wrong call.
  const bool either = is_present(ranks[end]) && last.inside;
  return {&ranks[waiter].activity, {end}, either ? std::optional(waiter) : std::nullopt};
}

Absence find_absence(std::span<const RankState> ranks, const DiagnosisTrigger& trigger) {
  const Activity& own = ranks[trigger.reporter].activity;
  const bool for_message = is_point_to_point(own.call.operation);
  if (for_message && trigger.waits_for != calls::Watchdog::anyone) return absence_from_message(ranks, trigger);
  const Activity& stuck = for_message ? own : lowest_collective(ranks, own);
  std::vector<std::size_t> missing = missing_ranks(ranks, stuck);
  std::erase(missing, trigger.reporter);
  return {&stuck, std::move(missing), {}};
}

const PastCall* call_with(const RankState& rank, std::uint64_t sequence) {
  const auto found = std::ranges::find(rank.past, sequence, [](const PastCall& one) { return one.call.sequence; });
  return is_present(rank) && found != rank.past.end() ? &*found : nullptr;
}

/// Ranks grouped by the collective that they made with one number. The largest group comes first (of equal ones, that
/// with the lowest rank): it made the right call.
std::vector<std::vector<std::size_t>> ranks_by_call(std::span<const RankState> ranks, std::uint64_t sequence) {
  std::map<std::uint32_t, std::vector<std::size_t>> by_call;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (const PastCall* const made = call_with(ranks[i], sequence)) by_call[made->signature()].push_back(i);
  }
  std::vector<std::vector<std::size_t>> groups;
  for (auto& [signature, group] : by_call) groups.push_back(std::move(group));
  std::ranges::sort(groups, [](const auto& a, const auto& b) {
    return a.size() != b.size() ? a.size() > b.size() : a.front() < b.front();
  });
  return groups;
}

/// As describe(), with the other arguments that can differ.
std::string in_full(const calls::Call& call) {
  std::string text = describe(call);
  if (is_reduction(call.operation)) text += concat({" ", to_string(call.redop)});
  const bool rooted = call.operation == calls::Operation::reduce || call.operation == calls::Operation::broadcast ||
                      call.operation == calls::Operation::gather || call.operation == calls::Operation::scatter;
  if (rooted) text += concat({" root ", std::to_string(call.root)});
  return text;
}

ErrorSubject subject_of(std::optional<std::size_t> rank, const calls::Call& call) {
  return {rank ? static_cast<std::int32_t>(*rank) : -1, call.operation, call.sequence};
}

Diagnosis diagnose_parted(std::span<const RankState> ranks, std::uint64_t sequence) {
  constexpr std::size_t most = 4;
  auto groups = ranks_by_call(ranks, sequence);
  const std::vector<std::size_t> right = std::move(groups.front());
  groups.erase(groups.begin());
  std::ranges::sort(groups, {}, [](const auto& group) { return group.front(); });
  const calls::Call& call = call_with(ranks[right.front()], sequence)->call;
  const std::string ours = in_full(call);
  std::string text;
  for (std::size_t i = 0; i < std::min(groups.size(), most); ++i) {
    std::string names = names_of(ranks, groups[i]);
    names.resize(names.rfind(' '));  // the verb
    const std::string theirs = in_full(call_with(ranks[groups[i].front()], sequence)->call);
    text += concat({i == 0 ? "" : ", ", names, " called ", theirs, theirs == ours ? " with other counts" : ""});
  }
  if (groups.size() > most) text += ", and others called it in still other ways";
  return {
      Errc::peer,
      concat({text, " where ", ranks[right.front()].name, right.size() > 1 ? " and others called " : " called ", ours}),
      subject_of(groups.front().front(), call)};
}

/// Two ranks met in different calls, and one of them has gone on meanwhile. The rank that fewer others agree with made
/// the wrong call (of two ranks, the one that is ahead). A root that only sends, for example, has ended its call before
/// any other rank notices.
Diagnosis diagnose_two(std::span<const RankState> ranks, const DiagnosisTrigger& trigger) {
  const RankState& other = ranks[static_cast<std::size_t>(trigger.waits_for)];
  const RankState& reporter = ranks[trigger.reporter];
  if (is_point_to_point(reporter.activity.call.operation)) {
    return {Errc::peer,
            concat({other.name, " sends another message than ", reporter.name, " receives in ",
                    describe(reporter.activity.call)}),
            subject_of(static_cast<std::size_t>(trigger.waits_for), reporter.activity.call)};
  }
  const auto beside = [&](const RankState& rank) {
    return std::ranges::count_if(ranks, [&](const RankState& each) {
      return is_present(each) && each.activity.sequence == rank.activity.sequence;
    });
  };
  const bool is_ahead = reporter.activity.sequence > other.activity.sequence;
  const bool is_reporter =
      is_present(other) && (beside(reporter) < beside(other) || (beside(reporter) == beside(other) && is_ahead));
  const RankState& wrong = is_reporter ? reporter : other;
  const RankState& right = is_reporter ? other : reporter;
  return {Errc::peer,
          concat({wrong.name, " made another call where ", right.name, " called ", in_full(right.activity.call)}),
          subject_of(static_cast<std::size_t>(&wrong - ranks.data()), right.activity.call)};
}

/// Ranks that have gone on to later calls while others wait in this one. Their call of the same number was perhaps one
/// that ends without other ranks, as that of a root that only sends; it is no longer known.
std::optional<Diagnosis> diagnose_those_ahead(std::span<const RankState> ranks, const Activity& stuck) {
  std::vector<std::size_t> ahead;
  std::vector<std::size_t> waiting;
  for (std::size_t i = 0; i < ranks.size() && !is_point_to_point(stuck.call.operation); ++i) {
    if (!is_present(ranks[i]) || ranks[i].activity.sequence < stuck.sequence) continue;
    (ranks[i].activity.sequence > stuck.sequence ? ahead : waiting).push_back(i);
  }
  if (ahead.empty() || waiting.empty()) return std::nullopt;
  std::string others = names_of(ranks, waiting);
  others.resize(others.rfind(' '));  // the verb
  return Diagnosis{Errc::timeout,
                   concat({others, waiting.size() == 1 ? " waits" : " wait", " in ", describe(stuck.call), ", but ",
                           names_of(ranks, ahead), " in ", describe(ranks[ahead.front()].activity.call),
                           " already: was another call made there, or is the network stuck?"}),
                   subject_of(std::nullopt, stuck.call)};
}

/// One rank sends another a number of elements that it does not expect. The rank that is in most such pairs called with
/// other counts; where both of a pair are in as many, either may be wrong.
std::optional<Diagnosis> diagnose_pairs(std::span<const RankState> ranks, const Activity& stuck) {
  struct Pair {
    std::size_t from;
    std::size_t to;
  };
  std::vector<Pair> wrong;
  std::vector<std::size_t> times(ranks.size());
  const auto knows = [&](std::size_t i) {
    const PairCounts& pairs = ranks[i].pairs;
    return is_present(ranks[i]) && pairs.sequence == stuck.sequence && pairs.gives.size() == ranks.size() &&
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
  if (wrong.empty() || stuck.call.operation != calls::Operation::alltoallv) return std::nullopt;
  const auto worst = static_cast<std::size_t>(std::ranges::max_element(times) - times.begin());
  const auto first = *std::ranges::find_if(wrong, [&](const Pair& p) { return p.from == worst || p.to == worst; });
  const RankState& from = ranks[first.from];
  const RankState& to = ranks[first.to];
  const std::string given = std::to_string(from.pairs.gives[first.to]);
  const std::string expected = std::to_string(to.pairs.takes[first.from]);
  const std::string call = concat({to_string(calls::Operation::alltoallv), " #", std::to_string(stuck.sequence)});
  if (times[first.from] == times[first.to])
    return Diagnosis{Errc::peer,
                     concat({from.name, " and ", to.name, " called ", call, " with counts that differ: ", from.name,
                             " gives ", given, " elements, ", to.name, " expects ", expected}),
                     subject_of(first.from, stuck.call)};
  if (first.from == worst)
    return Diagnosis{Errc::peer,
                     concat({from.name, " called ", call, " with other counts: it gives ", to.name, " ", given,
                             " elements where that expects ", expected}),
                     subject_of(first.from, stuck.call)};
  return Diagnosis{Errc::peer,
                   concat({to.name, " called ", call, " with other counts: it expects ", expected, " elements of ",
                           from.name, ", which gives ", given}),
                   subject_of(first.to, stuck.call)};
}

/// A rank that came to the end of the communicator without receiving what another one still sends to it.
std::optional<Diagnosis> diagnose_unreceived(std::span<const RankState> ranks, const Absence& absence) {
  if (!std::ranges::all_of(absence.missing, [&](std::size_t i) { return is_present(ranks[i]); })) return std::nullopt;
  for (std::size_t sender = 0; sender < ranks.size(); ++sender) {
    const auto receiver = partner_of(ranks, sender);
    if (!receiver || ranks[sender].activity.call.operation != calls::Operation::send) continue;
    const RankState& deaf = ranks[*receiver];
    if (!is_present(deaf) || !deaf.activity.inside || deaf.activity.call.operation != calls::Operation::finalize)
      continue;
    return Diagnosis{Errc::peer,
                     concat({deaf.name, " came to ", describe(deaf.activity.call), " without having received ",
                             describe(ranks[sender].activity.call), " of ", ranks[sender].name}),
                     subject_of(*receiver, deaf.activity.call)};
  }
  return std::nullopt;
}

/// What keeps ranks from each other although all are in the call: the sentence of one that cannot connect.
std::optional<Diagnosis> diagnose_trouble(std::span<const RankState> ranks) {
  const auto found = std::ranges::find_if(
      ranks, [](const RankState& rank) { return is_present(rank) && rank.activity.inside && !rank.trouble.empty(); });
  if (found == ranks.end()) return std::nullopt;
  return Diagnosis{Errc::timeout, concat({found->name, " ", found->trouble}),
                   subject_of(std::nullopt, found->activity.call)};
}

/// ": rank 1 (b) waits for rank 0 (a)", for the first few ranks that know for whom they wait.
std::string waits_of(std::span<const RankState> ranks) {
  constexpr std::size_t most = 4;
  std::string text;
  std::size_t told = 0;
  for (const RankState& rank : ranks) {
    const int other = rank.activity.waits_for;
    const bool waits = is_present(rank) && rank.activity.inside && other >= 0 && std::cmp_less(other, ranks.size());
    if (!waits || told == most) continue;
    text += concat({told == 0 ? " (" : ", ", rank.name, " waits for ", ranks[static_cast<std::size_t>(other)].name});
    ++told;
  }
  return told == 0 ? text : text + ")";
}

/// A message of a rank to itself: its send or its receive is missing, or the two differ.
Diagnosis diagnose_itself(std::span<const RankState> ranks, std::uint32_t own, bool differs) {
  const RankState& rank = ranks[own];
  const calls::Call& call = rank.activity.call;

  const std::string_view other_way = call.operation == calls::Operation::send ? "received" : "sent";
  if (differs)
    return {Errc::peer, concat({rank.name, " sends itself another message than it receives in ", describe(call)}),
            subject_of(own, call)};
  return {Errc::timeout,
          concat({rank.name, " waits for itself in ", describe(call), ": it has not ", other_way,
                  " that message; begin both directions, in a group or without waiting"}),
          subject_of(own, call)};
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

Diagnosis diagnose(std::span<const RankState> ranks, const DiagnosisTrigger& trigger) {
  const Activity& own = ranks[trigger.reporter].activity;
  if (is_point_to_point(own.call.operation) && trigger.waits_for == static_cast<int>(trigger.reporter))
    return diagnose_itself(ranks, trigger.reporter, trigger.differs);
  if (const auto parted = parting_of(ranks)) return diagnose_parted(ranks, *parted);
  if (trigger.differs) {
    if (auto diagnosis = diagnose_pairs(ranks, own)) return *diagnosis;
    if (trigger.waits_for >= 0) return diagnose_two(ranks, trigger);
  }
  const Absence absence = find_absence(ranks, trigger);
  if (auto diagnosis = diagnose_unreceived(ranks, absence)) return *diagnosis;
  if (!absence.missing.empty()) {
    const std::size_t first = absence.missing.front();
    const bool may_come = ranks[first].standing == Liveness::here || ranks[first].standing == Liveness::silent;
    const std::string whose = absence.waiter ? concat({" of ", ranks[*absence.waiter].name}) : "";
    return {may_come ? Errc::timeout : Errc::peer,
            concat({names_of(ranks, absence.missing), " missing in ", describe(absence.stuck->call), whose, ": ",
                    reason(ranks, first, *absence.stuck)}),
            subject_of(first, absence.stuck->call)};
  }
  if (auto diagnosis = diagnose_trouble(ranks)) return *diagnosis;
  if (auto diagnosis = diagnose_those_ahead(ranks, *absence.stuck)) return *diagnosis;
  return {Errc::timeout,
          concat({"no rank is missing in ", describe(absence.stuck->call), ", but it did not end before the deadline",
                  waits_of(ranks), ": ",
                  trigger.detail.empty() ? std::string("is the deadline too short for it, or the network stuck?")
                                         : trigger.detail}),
          subject_of(std::nullopt, absence.stuck->call)};
}

}  // namespace amldist::world
