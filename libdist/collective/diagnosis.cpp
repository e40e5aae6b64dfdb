#include "collective/diagnosis.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/text.hpp"

namespace amldist::collective {
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

/// Of a message, also with whom: two ranks may wait for each other.
std::string current_call(std::span<const RankState> ranks, const Call& call) {
  const bool has_partner =
      is_point_to_point(call.operation) && call.root >= 0 && std::cmp_less(call.root, ranks.size());
  if (!has_partner) return describe(call);
  return concat({describe(call), call.operation == Operation::send ? " to " : " from ",
                 ranks[static_cast<std::size_t>(call.root)].name});
}

std::string reason(std::span<const RankState> ranks, const RankState& rank, const Activity& stuck) {
  switch (rank.standing) {
    case Standing::silent:
      return "it does not answer (stopped, or its node is gone)";
    case Standing::dead:
      return rank.detail.empty() ? "its process has ended" : rank.detail;
    case Standing::left:
      return "it has finalized the communicator";
    case Standing::unaware:
      return "it does not have this communicator (not yet, or not any more)";
    case Standing::here:
      break;
  }
  if (rank.activity.inside) return concat({"it is still in ", current_call(ranks, rank.activity.call)});
  if (rank.activity.call.sequence == 0) return "it has made no call yet";
  if (is_point_to_point(stuck.call.operation)) {
    return concat({"it is in no call; its last was ", describe(rank.activity.call)});
  }
  return concat({"it has not called it; its last call was ", describe(rank.activity.call)});
}

bool is_present(const RankState& rank) { return rank.standing == Standing::here; }

/// The call that holds everybody up: the lowest numbered collective that somebody is in.
const Activity& stuck_call(std::span<const RankState> ranks, const Occasion& occasion) {
  const Activity* lowest = &ranks[occasion.reporter].activity;
  // Whoever saw another's call differ speaks of its own; ranks that are still in an earlier one have nothing to do with
  // it.
  if (occasion.differs || is_point_to_point(lowest->call.operation)) return *lowest;
  for (const RankState& rank : ranks) {
    const bool waits = is_present(rank) && rank.activity.inside && !is_point_to_point(rank.activity.call.operation);
    if (waits && rank.activity.sequence < lowest->sequence) lowest = &rank.activity;
  }
  return *lowest;
}

std::vector<std::size_t> missing_ranks(std::span<const RankState> ranks, const Activity& stuck,
                                       const Occasion& occasion) {
  std::vector<std::size_t> missing;
  const bool direct = is_point_to_point(stuck.call.operation) && occasion.waits_for != Vigil::anyone;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i == occasion.reporter) continue;
    if (direct && i != static_cast<std::size_t>(occasion.waits_for)) continue;
    const bool through = ranks[i].standing == Standing::left && stuck.call.operation == Operation::finalize;
    const bool absent = direct || !is_present(ranks[i]) || ranks[i].activity.sequence < stuck.sequence;
    if (absent && !through) missing.push_back(i);
  }
  // A dead rank explains the others' absence: they may be waiting for it elsewhere.
  const auto is_gone = [&](std::size_t i) {
    return ranks[i].standing == Standing::dead || ranks[i].standing == Standing::silent;
  };
  if (std::ranges::any_of(missing, is_gone)) std::erase_if(missing, [&](std::size_t i) { return !is_gone(i); });
  return missing;
}

/// Ranks whose call with the stuck number is not the one that most made (of equally many: the lowest rank's).
std::vector<std::size_t> differing_ranks(std::span<const RankState> ranks, const Activity& stuck, std::size_t& model) {
  std::map<std::uint32_t, std::vector<std::size_t>> by_call;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const Activity& activity = ranks[i].activity;
    if (is_present(ranks[i]) && activity.sequence == stuck.sequence && activity.call.sequence == stuck.sequence) {
      by_call[signature_of(activity.call)].push_back(i);
    }
  }
  const std::vector<std::size_t>* largest = nullptr;
  for (const auto& [signature, group] : by_call) {
    const bool better = largest == nullptr || group.size() > largest->size() ||
                        (group.size() == largest->size() && group.front() < largest->front());
    if (better) largest = &group;
  }
  std::vector<std::size_t> out;
  if (largest == nullptr) return out;
  model = largest->front();
  for (const auto& [signature, group] : by_call) {
    if (&group != largest) out.insert(out.end(), group.begin(), group.end());
  }
  std::ranges::sort(out);
  return out;
}

/// As describe(), with what else can differ.
std::string in_full(const Call& call) {
  std::string text = describe(call);
  if (is_reduction(call.operation)) text += concat({" ", to_string(call.redop)});
  const bool rooted = call.operation == Operation::reduce || call.operation == Operation::broadcast ||
                      call.operation == Operation::gather || call.operation == Operation::scatter;
  if (rooted) text += concat({" root ", std::to_string(call.root)});
  return text;
}

/// Two ranks met in different calls, and one of them has gone on meanwhile. Whoever is where fewer others are made the
/// wrong call (of two, the one that is ahead): a root that only sends, for example, is through with it before anybody
/// notices.
Error judge_two(std::span<const RankState> ranks, const Occasion& occasion) {
  const RankState& other = ranks[static_cast<std::size_t>(occasion.waits_for)];
  const RankState& reporter = ranks[occasion.reporter];
  const auto beside = [&](const RankState& rank) {
    return std::ranges::count_if(ranks, [&](const RankState& each) {
      return is_present(each) && each.activity.sequence == rank.activity.sequence;
    });
  };
  const bool is_ahead = reporter.activity.sequence > other.activity.sequence;
  const bool is_reporter = is_present(other) && (beside(reporter) < beside(other) ||
                                                 (beside(reporter) == beside(other) && is_ahead));
  const RankState& wrong = is_reporter ? reporter : other;
  const RankState& right = is_reporter ? other : reporter;
  return {Errc::peer,
          concat({wrong.name, " made another call where ", right.name, " called ", in_full(right.activity.call)})};
}

/// Ranks that have gone on to later calls while others wait in this one. Their call with its number was perhaps one that
/// ends without the others, as a root's that only sends; nobody knows any more.
std::optional<Error> judge_those_ahead(std::span<const RankState> ranks, const Activity& stuck) {
  std::vector<std::size_t> ahead;
  std::vector<std::size_t> waiting;
  for (std::size_t i = 0; i < ranks.size() && !is_point_to_point(stuck.call.operation); ++i) {
    if (!is_present(ranks[i]) || ranks[i].activity.sequence < stuck.sequence) continue;
    (ranks[i].activity.sequence > stuck.sequence ? ahead : waiting).push_back(i);
  }
  if (ahead.empty() || waiting.empty()) return std::nullopt;
  std::string others = names_of(ranks, waiting);
  others.resize(others.rfind(' '));  // the verb
  return Error{Errc::timeout,
               concat({others, waiting.size() == 1 ? " waits" : " wait", " in ", describe(stuck.call), ", but ",
                       names_of(ranks, ahead), " in ", describe(ranks[ahead.front()].activity.call),
                       " already: was another call made there, or is the network stuck?"})};
}

/// A message of a rank to itself, of which one direction is missing or another one than it should be.
Error judge_itself(const RankState& rank, const Call& call, bool differs) {
  const std::string_view other_way = call.operation == Operation::send ? "received" : "sent";
  if (differs)
    return {Errc::peer, concat({rank.name, " sends itself another message than it receives in ", describe(call)})};
  return {Errc::timeout, concat({rank.name, " waits for itself in ", describe(call), ": it has not ", other_way,
                                 " that message; begin both directions, in a group or without waiting"})};
}

}  // namespace

Error judge(std::span<const RankState> ranks, const Occasion& occasion) {
  const Activity& stuck = stuck_call(ranks, occasion);
  if (is_point_to_point(stuck.call.operation) && occasion.waits_for == static_cast<int>(occasion.reporter))
    return judge_itself(ranks[occasion.reporter], stuck.call, occasion.differs);
  const std::vector<std::size_t> missing = missing_ranks(ranks, stuck, occasion);
  if (!missing.empty() && !occasion.differs) {
    const RankState& first = ranks[missing.front()];
    const bool may_come = first.standing == Standing::here || first.standing == Standing::silent;
    return {may_come ? Errc::timeout : Errc::peer,
            concat({names_of(ranks, missing), " missing in ", describe(stuck.call), ": ", reason(ranks, first, stuck)})};
  }
  std::size_t model = 0;
  const std::vector<std::size_t> differing = differing_ranks(ranks, stuck, model);
  if (!differing.empty()) {
    const RankState& first = ranks[differing.front()];
    std::string text = names_of(ranks, differing);
    text.resize(text.rfind(' '));  // the verb
    return {Errc::peer,
            concat({text, " called ", in_full(first.activity.call), " where ", ranks[model].name,
                    ranks.size() > 2 ? " and others called " : " called ", in_full(ranks[model].activity.call)})};
  }
  if (occasion.differs && occasion.waits_for >= 0) return judge_two(ranks, occasion);
  if (auto verdict = judge_those_ahead(ranks, stuck)) return *verdict;
  return {Errc::timeout,
          concat({"no rank is missing in ", describe(stuck.call), ", but it did not end before the deadline: ",
                  occasion.detail.empty() ? std::string("is the deadline too short for it, or the network stuck?")
                                          : occasion.detail})};
}

}  // namespace amldist::collective
