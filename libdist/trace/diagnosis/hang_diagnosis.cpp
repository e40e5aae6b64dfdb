#include "trace/diagnosis/hang_diagnosis.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/text/text.hpp"
#include "trace/diagnosis/forgotten_calls.hpp"
#include "trace/diagnosis/given_up.hpp"
#include "trace/diagnosis/habit.hpp"

namespace amldist::trace {
namespace {

using text::concat;
using Kind = HangDiagnosis::Kind;
using Why = MissingRank::Why;

Kind kind_of(const Stall& stall) {
  const auto any = [&](Why why) {
    return std::ranges::find(stall.missing, why, &MissingRank::why) != stall.missing.end();
  };
  if (stall.is_tie && any(Why::slow)) return Kind::slow;
  if (any(Why::differs) || any(Why::alone) || any(Why::cut_short)) return Kind::wrong_call;
  if (any(Why::gone)) return Kind::dead;
  if (any(Why::stopped)) return Kind::stopped;
  if (any(Why::never_called)) return Kind::not_come;
  return any(Why::slow) ? Kind::slow : Kind::unrecorded;
}

bool is_finalize(const CallRecord& call) { return call.operation == calls::Operation::finalize; }

bool has_ended_well(const Recording& rank) {
  return rank.ending == recorder_format::Ending::well || (!rank.calls.empty() && is_finalize(rank.calls.back()));
}
bool has_ended_well(const MissingRank& rank) { return rank.recording != nullptr && has_ended_well(*rank.recording); }

/// Few ranks are in the last call of all while most have calls to make: they have ended their program early, and what
/// they wait for is not the fault.
bool has_left_early(const Stall& stall) { return is_finalize(stall.call) && stall.waiting.size() * 2 < stall.members; }

/// Where others have certainly not come, a rank without a recorder, or one whose slots are all in use, may have.
void drop_unsure(std::vector<MissingRank>& missing) {
  const auto is_unsure = [](const MissingRank& each) { return each.why == Why::no_recorder; };
  if (!std::ranges::all_of(missing, is_unsure)) std::erase_if(missing, is_unsure);
}

/// Who waits for whom. Its nodes are ranks and stalls: a rank leads to the stalls that it waits in, a stall to the
/// ranks that have not come to it.
class WaitGraph {
 public:
  explicit WaitGraph(const std::vector<Stall>& stalls);

  [[nodiscard]] bool waits(std::uint32_t rank) const { return node_of_.contains(rank); }
  [[nodiscard]] std::vector<std::uint32_t> ranks() const { return ranks_; }
  /// How many calls wait for a rank.
  [[nodiscard]] std::size_t stalls_for(std::uint32_t rank) const { return awaited_.count(rank); }
  [[nodiscard]] std::optional<Stall> end_of_waits(bool last_resort = false) const;

  /// A wait on a circle: the next one's rank has not come to this rank's stall.
  struct Link {
    std::uint32_t rank;
    const Stall* stall;
  };
  [[nodiscard]] std::vector<Link> circle() const;
  /// Whether the waits of all circles would end if this rank did not wait where it does.
  [[nodiscard]] bool is_on_all_circles(std::uint32_t rank) const { return unending(node_of_.at(rank)).empty(); }
  /// A call in which most ranks are, and to which only a few have not come because they are in another one.
  [[nodiscard]] const Stall* majority() const;

 private:
  using Node = std::uint32_t;
  static constexpr Node no_node = ~Node{0};
  [[nodiscard]] bool is_idle_server(const Stall& stall) const;
  [[nodiscard]] std::set<Node> unending(Node without) const;

  const std::vector<Stall>& stalls_;
  std::vector<std::uint32_t> ranks_;  ///< that wait, ascending: nodes from 0 on; those of the stalls follow
  std::map<std::uint32_t, Node> node_of_;
  std::multiset<std::uint32_t> awaited_;  ///< a rank for each call that waits for it
  std::vector<std::vector<Node>> next_;
  std::vector<std::vector<Node>> previous_;
};

WaitGraph::WaitGraph(const std::vector<Stall>& stalls) : stalls_(stalls) {
  for (const Stall& stall : stalls) {
    for (const std::uint32_t rank : stall.waiting) node_of_.try_emplace(rank, Node{0});
    for (const MissingRank& each : stall.missing) {
      if (!each.is_in_group_only) awaited_.insert(each.rank);
    }
  }
  for (auto& [rank, node] : node_of_) {
    node = static_cast<Node>(ranks_.size());
    ranks_.push_back(rank);
  }
  next_.resize(ranks_.size() + stalls.size());
  previous_.resize(next_.size());
  const auto lead = [this](Node from, Node to) {
    next_[from].push_back(to);
    previous_[to].push_back(from);
  };
  for (std::size_t i = 0; i < stalls.size(); ++i) {
    if (is_idle_server(stalls[i])) continue;
    const auto own = static_cast<Node>(ranks_.size() + i);
    for (const std::uint32_t rank : stalls[i].waiting) lead(node_of_[rank], own);
    for (const MissingRank& each : stalls[i].missing) {
      const auto found = each.is_in_group_only ? node_of_.end() : node_of_.find(each.rank);
      if (found != node_of_.end()) lead(own, found->second);
      if (stalls[i].call.peer == recorder_format::any_peer) break;  // one of them is enough to end it
    }
  }
}

/// A rank that would receive from any rank, and that nobody waits for, only has nothing to do.
bool WaitGraph::is_idle_server(const Stall& stall) const {
  const bool is_from_any = stall.is_message() && stall.call.peer == recorder_format::any_peer;
  return is_from_any && std::ranges::none_of(stall.waiting, [&](auto rank) { return awaited_.contains(rank); });
}

/// The stall with somebody who waits for nobody. Only these ranks are left in it. A rank that waits on a communicator
/// that is not judged does not count, unless nobody else is found: `last_resort`.
std::optional<Stall> WaitGraph::end_of_waits(bool last_resort) const {
  // Ranks that died while they waited for a dead one died because of it.
  const auto died_first = [this](const MissingRank& each) { return each.why == Why::gone && !waits(each.rank); };
  const bool is_first_known =
      std::ranges::any_of(stalls_, [&](const Stall& stall) { return std::ranges::any_of(stall.missing, died_first); });
  const auto is_consequence = [&](const MissingRank& each) {
    if (each.unjudged_wait != nullptr && !last_resort) return true;
    const bool may_have_come = each.why == Why::no_recorder && each.recording != nullptr;
    return !each.is_in_group_only && waits(each.rank) &&
           (each.why == Why::never_called || may_have_come || (each.why == Why::gone && is_first_known));
  };
  // What is known for certain comes first, then the wait of more ranks, then the older one.
  const auto order = [](const Stall& stall) {
    constexpr std::array<int, 7> weight = {3, 1, 2, 0, 4, 5, 6};
    return std::tuple(weight.at(static_cast<std::size_t>(kind_of(stall))),
                      -static_cast<std::int64_t>(stall.waiting.size()), stall.since_ns);
  };
  std::optional<Stall> best;
  for (const Stall& stall : stalls_) {
    if (is_idle_server(stall)) continue;
    std::vector<MissingRank> missing = stall.missing;
    std::erase_if(missing, is_consequence);
    if (missing.empty()) continue;
    Stall own = stall;
    own.missing = std::move(missing);
    if (!best || order(own) < order(*best)) best = std::move(own);
  }
  return best;
}

/// The nodes from which waits never end: all but those whose every way ends. `without`: a rank that waits for nobody.
std::set<WaitGraph::Node> WaitGraph::unending(Node without) const {
  std::vector<std::size_t> ways(next_.size());
  std::vector<Node> ended;
  for (Node node = 0; node < next_.size(); ++node) {
    ways[node] = node == without ? 0 : next_[node].size();
    if (ways[node] == 0) ended.push_back(node);
  }
  for (std::size_t i = 0; i < ended.size(); ++i) {
    for (const Node before : previous_[ended[i]]) {
      if (before != without && --ways[before] == 0) ended.push_back(before);
    }
  }
  std::set<Node> left;
  for (Node node = 0; node < next_.size(); ++node) {
    if (ways[node] != 0) left.insert(node);
  }
  return left;
}

std::vector<WaitGraph::Link> WaitGraph::circle() const {
  const auto left = unending(no_node);
  if (left.empty()) return {};
  const auto next = [&](Node node) {
    return *std::ranges::find_if(next_[node], [&](Node each) { return left.contains(each); });
  };
  std::set<Node> seen;
  Node node = *left.begin();
  for (; seen.insert(node).second; node = next(node)) {
  }
  if (node >= ranks_.size()) node = next(node);
  std::vector<Link> links;
  const Node start = node;
  do {
    const Node stall = next(node);
    links.push_back({ranks_[node], &stalls_[stall - ranks_.size()]});
    node = next(stall);
  } while (node != start);
  return links;
}

const Stall* WaitGraph::majority() const {
  const auto found = std::ranges::max_element(stalls_, {}, [](const Stall& stall) { return stall.waiting.size(); });
  if (found == stalls_.end() || found->is_message() || found->waiting.size() <= found->missing.size()) return nullptr;
  const auto as_many =
      std::ranges::count_if(stalls_, [&](const Stall& stall) { return stall.waiting.size() == found->waiting.size(); });
  // Somebody of the majority must be waited for by the few, in a call of all: else the few wait among themselves.
  const bool few_wait_in_collective = std::ranges::all_of(found->missing, [&](const MissingRank& each) {
    const auto node = node_of_.find(each.rank);
    return node != node_of_.end() && std::ranges::none_of(next_[node->second], [&](Node stall) {
             return stalls_[stall - ranks_.size()].is_message();
           });
  });
  return as_many == 1 && few_wait_in_collective ? &*found : nullptr;
}

/// A rank's recording and the oldest call that it waits in.
struct OwnWait {
  const Recording* recording = nullptr;
  const CallRecord* call = nullptr;
};
OwnWait own_wait(std::span<const Recording> recordings, std::uint32_t rank) {
  for (const Recording& each : recordings) {
    if (each.rank != rank) continue;
    if (const CallRecord* const failed = given_up_in(each)) return {&each, failed};
    const auto call = std::ranges::find_if(each.calls, [](const CallRecord& one) {
      return one.state == recorder_format::State::started || one.state == recorder_format::State::failed;
    });
    if (call != each.calls.end()) return {&each, &*call};
  }
  return {};
}

/// Where a rank has ended its program: whether that was its end, by the rounds of calls that it and the others made.
enum class ProgramEnd : std::uint8_t {
  unknown,
  early,      ///< amid a round, or after fewer than all others that have ended
  possible,   ///< perhaps after a round
  as_others,  ///< after as many rounds as all others that have ended
};
ProgramEnd program_end(std::span<const Recording> recordings, const Recording& rank, std::uint32_t waiting) {
  const auto own = rounds_of(rank);
  if (!own) return ProgramEnd::unknown;
  std::set<std::size_t> others;
  for (const Recording& each : recordings) {
    const bool has_ended = has_ended_well(each) || each.has_exited;
    if (!has_ended || each.source != rank.source || each.rank == rank.rank || each.rank == waiting) continue;
    if (const auto rounds = rounds_of(each); rounds && !rounds->is_amid_one) others.insert(rounds->whole);
  }
  if (own->is_amid_one) return ProgramEnd::early;
  // If it is the only rank that has exited, it has more likely left early than finished.
  if (others.empty()) return has_ended_well(rank) ? ProgramEnd::possible : ProgramEnd::early;
  if (others.size() > 1) return ProgramEnd::unknown;
  const std::size_t usual = *others.begin();
  if (own->whole == usual) return own->is_one_call_alike ? ProgramEnd::possible : ProgramEnd::as_others;
  // Of several calls alike in each round, each looks like a round.
  return own->whole < usual && usual % own->whole != 0 ? ProgramEnd::early : ProgramEnd::unknown;
}

/// Of two, one has come to its last call of all, and the other waits for it in another one: whichever has made other
/// rounds than all the rest. nullopt: that is not known, or not so.
std::optional<std::uint32_t> wrong_by_rounds(std::span<const Recording> recordings,
                                             const std::vector<std::uint32_t>& ranks) {
  if (ranks.size() != 2) return std::nullopt;
  OwnWait last = own_wait(recordings, ranks[0]);
  OwnWait other = own_wait(recordings, ranks[1]);
  if (last.call == nullptr || other.call == nullptr) return std::nullopt;
  if (!is_finalize(*last.call)) std::swap(last, other);
  if (!is_finalize(*last.call) || is_finalize(*other.call)) return std::nullopt;
  const auto end = program_end(recordings, *last.recording, other.recording->rank);
  if (end == ProgramEnd::early) return last.recording->rank;
  const bool is_too_many = end == ProgramEnd::as_others && recorder_format::is_collective(other.call->operation);
  return is_too_many ? std::optional(other.recording->rank) : std::nullopt;
}

/// The one of several ranks that is wrong by its own past or by the order of all ranks' calls; nullopt: neither tells.
std::optional<std::uint32_t> wrong_one(std::span<const Recording> recordings, const std::vector<std::uint32_t>& ranks) {
  if (ranks.size() == 1) return ranks.front();
  std::vector<std::uint32_t> broken;
  std::vector<std::uint32_t> leaving;
  for (const std::uint32_t rank : ranks) {
    const OwnWait own = own_wait(recordings, rank);
    if (own.call == nullptr) return std::nullopt;
    if (habit_of(*own.recording, *own.call) == Habit::broken) broken.push_back(rank);
    if (common_order(recordings, *own.recording, *own.call) == CommonOrder::left) leaving.push_back(rank);
  }
  const auto& found = broken.size() == 1 ? broken : leaving;
  const bool is_contradicted = broken.size() == 1 && leaving.size() == 1 && broken != leaving;
  if (found.empty()) return wrong_by_rounds(recordings, ranks);
  return found.size() == 1 && !is_contradicted ? std::optional(found.front()) : std::nullopt;
}

/// All wait in circles: the rank that is in the wrong call, if it can be told.
std::optional<Stall> wrong_call(std::span<const Recording> recordings, const WaitGraph& graph,
                                const std::vector<WaitGraph::Link>& circle) {
  constexpr std::size_t longest_circle = 16;  // a longer one is a ring of messages; each candidate costs a look at all
  if (circle.size() > longest_circle) return std::nullopt;
  std::vector<std::uint32_t> candidates;
  for (const auto& link : circle) {
    if (graph.is_on_all_circles(link.rank)) candidates.push_back(link.rank);
  }
  if (candidates.empty()) {
    const Stall* const majority = graph.majority();
    return majority != nullptr ? std::optional(*majority) : std::nullopt;
  }
  const auto wrong = wrong_one(recordings, candidates);
  if (!wrong) return std::nullopt;
  const auto own = std::ranges::find(circle, *wrong, &WaitGraph::Link::rank);
  const auto& before = own == circle.begin() ? circle.back() : *std::prev(own);
  Stall stall = *before.stall;
  std::erase_if(stall.missing, [&](const MissingRank& each) { return each.rank != *wrong; });
  return stall;
}

/// Some ranks wait in a call that all others have ended without: they made one too many, where they are fewer, or where
/// their past says so. A rank that has ended with status 0 without its last call may have left early.
std::optional<Stall> call_too_many(std::span<const Recording> recordings, const WaitGraph& graph, const Stall& stall) {
  constexpr std::size_t most_examined = 16;
  const bool are_fewer = stall.waiting.size() < stall.missing.size();
  const auto has_ended = [&](const MissingRank& each) {
    return has_ended_well(each) || (each.recording != nullptr && each.recording->has_exited);
  };
  if (stall.waiting.empty() || stall.waiting.size() > most_examined || !std::ranges::all_of(stall.missing, has_ended))
    return std::nullopt;
  Stall own = stall;
  own.missing.clear();
  own.waiting.clear();
  for (const std::uint32_t rank : stall.waiting) {
    const OwnWait waits = own_wait(recordings, rank);
    if (waits.call == nullptr) return std::nullopt;
    own.missing.push_back({Why::alone, rank, waits.recording, waits.call});
  }
  if (are_fewer) return own;
  if (stall.waiting.size() > 1) return std::nullopt;
  // Of two, one has made a call more than the other.
  const std::size_t here = broken_habits(*own.missing[0].recording);
  const Recording& other = *stall.missing[0].recording;
  const std::size_t there = broken_habits(other);
  const auto end = stall.is_message() ? ProgramEnd::unknown : program_end(recordings, other, stall.waiting[0]);
  const bool has_ended_early = end == ProgramEnd::early || (end == ProgramEnd::unknown && !has_ended_well(other)) ||
                               (!other.calls.empty() && is_finalize(other.calls.back()) &&
                                common_order(recordings, other, other.calls.back()) == CommonOrder::left);
  if ((here < there && !stall.is_message()) || has_ended_early || graph.stalls_for(stall.missing[0].rank) > 1)
    return std::nullopt;
  if (end == ProgramEnd::as_others) return own;
  const bool is_new_to_it = habit_of(*own.missing[0].recording, *own.missing[0].last) == Habit::broken;
  if (here == there || !is_new_to_it) {
    own.is_tie = true;
    own.missing.push_back(stall.missing[0]);
    std::ranges::sort(own.missing, {}, &MissingRank::rank);
  }
  return own;
}

std::vector<Stall> to_stalls(const std::vector<WaitGraph::Link>& circle) {
  std::vector<Stall> links;
  for (const auto& link : circle) {
    Stall stall = *link.stall;
    stall.waiting = {link.rank};
    links.push_back(std::move(stall));
  }
  for (std::size_t i = 0; i < links.size(); ++i) {
    const std::uint32_t next = circle[(i + 1) % circle.size()].rank;
    std::erase_if(links[i].missing, [&](const MissingRank& each) { return each.rank != next; });
  }
  return links;
}

/// A message to a rank that has come to its last call: it will not be received any more.
bool is_sent_past_the_end(const Stall& stall) {
  return stall.call.operation == calls::Operation::send && stall.missing.front().is_finalizing();
}

/// The sender has sent once too often, or the other rank has left out a receive, or ended early: whose past is broken
/// more often is wrong.
Stall message_past_the_end(std::span<const Recording> recordings, const Stall& stall) {
  Stall own = stall;
  const std::uint32_t rank = stall.waiting.front();
  const OwnWait sender = own_wait(recordings, rank);
  if (sender.call == nullptr) return own;
  constexpr std::size_t least_calls = 8;  // libamldist's own diagnosis knows the last few only, which tell nothing
  const bool is_past_known = sender.recording->told_breaks || sender.recording->calls.size() >= least_calls;
  const std::size_t here = broken_habits(*sender.recording);
  const std::size_t there = broken_habits(*stall.missing.front().recording);
  const bool has_ended_early = program_end(recordings, *stall.missing.front().recording, rank) == ProgramEnd::early;
  if (here < there || !is_past_known || (here == there && has_ended_early)) return own;
  own.waiting.clear();
  if (here > there) own.missing.clear();
  else own.is_tie = true;
  own.missing.push_back({Why::alone, rank, sender.recording, sender.call});
  std::ranges::sort(own.missing, {}, &MissingRank::rank);
  return own;
}

/// Keeps the waits of a rank, and those of the ranks that it waits for, directly or by way of others.
void keep_waits_of(std::vector<Stall>& stalls, std::uint32_t rank) {
  std::vector<std::uint32_t> ranks = {rank};
  auto kept = stalls.begin();
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto concerns = [own = ranks[i]](const Stall& stall) {
      return std::ranges::find(stall.waiting, own) != stall.waiting.end() ||
             std::ranges::find(stall.missing, own, &MissingRank::rank) != stall.missing.end();
    };
    const auto end = std::stable_partition(kept, stalls.end(), concerns);
    for (; kept != end; ++kept) {
      for (const MissingRank& each : kept->missing) ranks.push_back(each.rank);
    }
  }
  stalls.erase(kept, stalls.end());
}

std::string deadlock_sentence(const HangDiagnosis& diagnosis, std::uint64_t seconds) {
  constexpr std::size_t most_named = 4;
  const std::size_t stuck = std::max(diagnosis.circle.size(), diagnosis.waits.size());
  std::string words = concat({"deadlock of ", text::count(stuck, "rank"),
                              seconds == 0 ? "" : concat({" for ", std::to_string(seconds), " s"}), ": "});
  for (std::size_t i = 0; i < std::min(diagnosis.circle.size(), most_named); ++i) {
    const Stall& link = diagnosis.circle[i];
    words += concat({i == 0 ? "" : ", ", "rank ", std::to_string(link.waiting.front()), " waits in ",
                     call_of_group(link), " for rank ", std::to_string(link.missing.front().rank)});
  }
  if (diagnosis.circle.size() > most_named) words += ", and so on";
  return words;
}

}  // namespace

std::optional<HangDiagnosis> diagnose_hang(std::span<const Recording> recordings, std::optional<std::uint32_t> of) {
  auto stalls = find_all_stalls(recordings);
  if (of) keep_waits_of(stalls, *of);
  for (Stall& each : stalls) drop_unsure(each.missing);
  for (Stall& each : stalls) judge_forgotten_calls(recordings, each);
  // What ranks wait for that have left early is the fault only where nobody waits for anything else.
  if (!std::ranges::all_of(stalls, has_left_early)) std::erase_if(stalls, has_left_early);
  const WaitGraph graph(stalls);
  const auto blame = [&](const Stall& stall, Kind kind) { return HangDiagnosis{kind, stall, {}, graph.ranks()}; };
  if (const auto end = graph.end_of_waits()) {
    const bool differ = kind_of(*end) == Kind::wrong_call;
    const auto too_many = differ ? std::nullopt : call_too_many(recordings, graph, *end);
    return too_many ? blame(*too_many, Kind::wrong_call) : blame(*end, kind_of(*end));
  }
  const auto circle = graph.circle();
  if (circle.empty()) {
    const auto end = graph.end_of_waits(true);
    return end ? std::optional(blame(*end, kind_of(*end))) : std::nullopt;
  }
  if (const auto late = std::ranges::find_if(stalls, is_sent_past_the_end); late != stalls.end())
    return blame(message_past_the_end(recordings, *late), Kind::wrong_call);
  if (const auto wrong = wrong_call(recordings, graph, circle))
    return blame(*wrong, circle.size() == 1 ? Kind::not_come : Kind::wrong_call);  // alone, it waits for itself
  auto links = to_stalls(circle);
  return HangDiagnosis{Kind::deadlock, links.front(), links, graph.ranks()};
}

std::string_view to_string(Kind kind) noexcept {
  constexpr std::array<std::string_view, 7> words = {"not-come", "dead",       "stopped", "wrong-call",
                                                     "slow",     "unrecorded", "deadlock"};
  return words.at(static_cast<std::size_t>(kind));
}

std::string sentence(const HangDiagnosis& diagnosis, std::uint64_t seconds) {
  if (diagnosis.kind == Kind::deadlock) return deadlock_sentence(diagnosis, seconds);
  const auto is_missing = [&](std::uint32_t rank) {
    return std::ranges::binary_search(diagnosis.stall.missing, rank, {}, &MissingRank::rank);
  };
  const auto missing = static_cast<std::size_t>(std::ranges::count_if(diagnosis.waits, is_missing));
  return sentence(diagnosis.stall, seconds, diagnosis.waits.size() - missing);
}

bool is_same(const HangDiagnosis& one, const HangDiagnosis& other) {
  constexpr std::int64_t clock_noise_ns = 1'000'000'000;
  const auto key = [](const HangDiagnosis& diagnosis) {
    std::set<std::uint32_t> culprits;
    for (const MissingRank& each : diagnosis.stall.missing) culprits.insert(each.rank);
    return std::tuple(diagnosis.kind, diagnosis.stall.communicator, diagnosis.stall.call.sequence,
                      diagnosis.stall.call.operation, culprits);
  };
  const std::int64_t apart = one.stall.since_ns - other.stall.since_ns;
  return key(one) == key(other) && apart < clock_noise_ns && apart > -clock_noise_ns;
}

}  // namespace amldist::trace
