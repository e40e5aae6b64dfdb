#include "trace/diagnosis/stalls.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "trace/diagnosis/given_up.hpp"
#include "trace/diagnosis/habit.hpp"

namespace amldist::trace {
namespace {

using recorder_format::any_peer;
using recorder_format::any_tag;
using recorder_format::is_collective;
using recorder_format::State;
using Why = MissingRank::Why;

/// One process's view of one communicator.
struct Member {
  const Recording* recording;
  const CommunicatorRecord* communicator;
  std::vector<const CallRecord*> calls = {};  ///< collective ones on it, oldest first
  const CallRecord* blocking = nullptr;       ///< the oldest that has not ended, else the newest; nullptr: it has none
  std::uint64_t uncounted = 0;                ///< 1: an MPI_Finalize after a failed call, which is not in `calls`
  [[nodiscard]] bool waits() const {
    return blocking != nullptr && (blocking->pending() || blocking->state == State::failed);
  }
  /// Not only posted: the program waits in it, or did when it failed.
  [[nodiscard]] bool is_held_up() const {
    return blocking != nullptr && (blocking->state == State::started || blocking->state == State::failed);
  }
  [[nodiscard]] std::uint64_t entered() const { return std::max(communicator->entered, uncounted) - uncounted; }
  [[nodiscard]] std::uint32_t rank() const { return recording->rank; }
  [[nodiscard]] const CallRecord* newest() const { return calls.empty() ? nullptr : calls.back(); }
  [[nodiscard]] const CallRecord* call(std::uint64_t sequence) const {
    const auto found = std::ranges::find(calls, sequence, &CallRecord::sequence);
    return found != calls.end() ? *found : nullptr;
  }
  void find_blocking();
};

/// Of several calls that have not ended, one that somebody waits in counts. With asynchronous calls the newest is not
/// the one that blocks, nor is one that was posted and is not waited for yet.
void Member::find_blocking() {
  for (const CallRecord* const call : calls) {
    if (!call->pending()) continue;
    if (blocking == nullptr) blocking = call;
    if (!recording->knows_ends() || call->state != State::started) continue;
    if (blocking->state != State::started || call->sequence < blocking->sequence) blocking = call;
  }
  if (blocking == nullptr) blocking = newest();
}

using Group = std::vector<Member>;

/// What is asked about a step again and again.
class Step {
 public:
  explicit Step(std::span<const Recording> recordings)
      : recordings_(recordings), given_up_(ranks_that_gave_up(recordings)) {
    for (const Recording& each : recordings) add(each);
  }

  [[nodiscard]] std::span<const Recording> recordings() const { return recordings_; }
  /// By the id of their communicator, without members that have closed it.
  [[nodiscard]] const std::map<std::uint64_t, Group>& groups() const { return groups_; }

  struct Place {
    const Recording* recording = nullptr;
    const CommunicatorRecord* communicator = nullptr;
  };
  /// A rank of a communicator, whether it still has that communicator or not.
  [[nodiscard]] Place place(std::uint64_t communicator, std::uint32_t rank) const {
    const auto found = places_.find(std::pair(communicator, rank));
    return found != places_.end() ? found->second : Place{};
  }
  [[nodiscard]] const Recording* recording(std::uint32_t rank, std::string_view source) const {
    const auto found = by_rank_.find(std::pair(rank, source));
    return found != by_rank_.end() ? found->second : nullptr;
  }
  /// When a rank of the step last began or ended a call; 0: it has made none that is known.
  [[nodiscard]] std::int64_t last_call_ns(std::uint32_t rank) const {
    const auto found = last_call_ns_.find(rank);
    return found != last_call_ns_.end() ? found->second : 0;
  }
  /// Whether a member of a communicator has posted another operation for this peer, with a tag that fits.
  [[nodiscard]] bool has_posted(const CommunicatorRecord& own, std::uint32_t partner, const CallRecord& call) const;
  /// Whether somebody waits to be rid of a message to a member. One that was only posted may have arrived long ago.
  [[nodiscard]] bool is_sent(const CommunicatorRecord& to, std::uint16_t tag) const {
    const auto found = sent_.find(std::pair(to.id, to.rank));
    return found != sent_.end() && fits(found->second, tag);
  }
  /// Some members of a communicator who wait in no call, or else one other member than `own`.
  [[nodiscard]] std::vector<Place> idle(const CommunicatorRecord& own) const;

 private:
  using Tags = std::set<std::uint16_t>;
  static bool fits(const Tags& tags, std::uint16_t tag) {
    return tag == any_tag ? !tags.empty() : tags.contains(tag) || tags.contains(any_tag);
  }
  void add(const Recording& recording);
  void add(const Recording& recording, const CallRecord& call);

  std::span<const Recording> recordings_;
  std::set<const Recording*> given_up_;
  std::map<std::uint64_t, Group> groups_;
  std::map<std::pair<std::uint64_t, std::uint32_t>, Place> places_;  ///< by communicator and rank in it
  std::map<std::pair<std::uint32_t, std::string_view>, const Recording*> by_rank_;
  std::map<std::uint32_t, std::int64_t> last_call_ns_;
  std::map<std::uint64_t, std::vector<Place>> idle_;
  std::map<std::pair<std::uint64_t, std::uint32_t>, Tags> sent_;  ///< as places_: to whom
  /// Communicator, rank in it, peer, operation.
  std::map<std::tuple<std::uint64_t, std::uint32_t, std::int32_t, calls::Operation>, Tags> posted_;
};

void Step::add(const Recording& recording) {
  constexpr std::size_t most_idle = 8;
  by_rank_.try_emplace(std::pair(recording.rank, std::string_view(recording.source)), &recording);
  std::map<std::uint32_t, Member*> open;  // by slot
  for (const CommunicatorRecord& each : recording.communicators) {
    places_.try_emplace(std::pair(each.id, each.rank), Place{&recording, &each});
    if (each.closed || each.id == recorder_format::unjudged_id) continue;
    groups_[each.id].push_back({&recording, &each});
  }
  // Only now: a file that lies may have one communicator twice.
  for (const CommunicatorRecord& each : recording.communicators) {
    if (each.closed || each.id == recorder_format::unjudged_id) continue;
    Group& group = groups_[each.id];
    const auto own = std::ranges::find(group.rbegin(), group.rend(), &each, &Member::communicator);
    open[each.slot] = &*own;
  }
  std::int64_t& last = last_call_ns_[recording.rank];
  bool waits = false;
  for (const CallRecord& call : recording.calls) {
    last = std::max({last, call.enqueued_ns, call.started_ns, call.ended_ns});
    waits |= call.state == State::started;
    if (!is_collective(call.operation)) {
      add(recording, call);
    } else if (const auto member = open.find(call.communicator); member != open.end() && call.sequence != 0) {
      if (call.operation == calls::Operation::finalize && given_up_.contains(&recording)) member->second->uncounted = 1;
      else member->second->calls.push_back(&call);
    }
  }
  for (const auto& [slot, member] : open) member->find_blocking();
  if (waits && recording.writer == Writer::runs) return;
  for (const CommunicatorRecord& each : recording.communicators) {
    auto& idle = idle_[each.id];
    if (idle.size() < most_idle) idle.push_back({&recording, &each});
  }
}

void Step::add(const Recording& recording, const CallRecord& call) {
  const auto* const own = recording.communicator(call.communicator);
  if (own == nullptr || !call.pending()) return;
  posted_[{own->id, own->rank, call.peer, call.operation}].insert(call.tag);
  if (call.operation == calls::Operation::send && call.state == State::started && call.peer >= 0)
    sent_[{own->id, static_cast<std::uint32_t>(call.peer)}].insert(call.tag);
}

bool Step::has_posted(const CommunicatorRecord& own, std::uint32_t partner, const CallRecord& call) const {
  for (const auto operation : {calls::Operation::send, calls::Operation::recv, recorder_format::other::sendrecv,
                               recorder_format::other::probe}) {
    for (const std::int32_t peer : {static_cast<std::int32_t>(own.rank), any_peer}) {
      const auto found = posted_.find({own.id, partner, peer, operation});
      if (operation != call.operation && found != posted_.end() && fits(found->second, call.tag)) return true;
    }
  }
  return false;
}

std::vector<Step::Place> Step::idle(const CommunicatorRecord& own) const {
  std::vector<Place> places;
  if (const auto found = idle_.find(own.id); found != idle_.end()) places = found->second;
  std::erase_if(places, [&](const Place& each) { return each.communicator->rank == own.rank; });
  for (std::uint32_t rank = 0; rank < 2 && places.empty(); ++rank) {
    if (const Place other = place(own.id, rank); other.recording != nullptr && rank != own.rank)
      places.push_back(other);
  }
  return places;
}

MissingRank missing_rank_of(const Member& member, Why why) {
  const bool is_late = why == Why::never_called || why == Why::no_recorder;
  const Writer writer = member.recording->writer;
  if (why != Why::differs && (writer == Writer::stopped || writer == Writer::silent)) why = Why::stopped;
  if (why != Why::differs && writer == Writer::gone) why = Why::gone;
  return {why, member.rank(), member.recording, member.newest(), is_late ? member.recording->unjudged_wait() : nullptr};
}

/// A rank of a communicator of which no recorder is known. Its node may have told what became of its process.
MissingRank without_recorder(const Step& step, const Recording& other, const CommunicatorRecord& communicator,
                             std::uint32_t rank) {
  const auto& members = communicator.world_ranks;
  if (rank >= members.size() && communicator.size != other.size)
    return {.why = Why::no_recorder, .rank = rank, .is_in_group_only = true};
  const std::uint32_t in_step = rank < members.size() ? members[rank] : rank;
  const Recording* const told = step.recording(in_step, without_file);
  return told != nullptr ? missing_rank_of({told, nullptr}, Why::no_recorder)
                         : MissingRank{.why = Why::no_recorder, .rank = in_step};
}

/// A rank of a communicator of another one's that is not known to have it. It has not made the call that would give it
/// one; or has it all the same, where its slots are all in use, or where its node has told the most important ones
/// only.
MissingRank absent_member(const Step& step, const Recording& other, const CommunicatorRecord& communicator,
                          std::uint32_t rank, std::uint64_t sequence) {
  const auto& members = communicator.world_ranks;
  const Recording* const found = rank < members.size() ? step.recording(members[rank], other.source) : nullptr;
  if (found == nullptr) return without_recorder(step, other, communicator, rank);
  const bool is_certain = sequence == 1 && !found->lacks_slots();
  return missing_rank_of({found, nullptr}, is_certain ? Why::never_called : Why::no_recorder);
}

void add_absent(const Group& group, const Step& step, std::uint64_t sequence, Stall& stall) {
  std::vector<bool> seen(std::min<std::size_t>(stall.members, group.size() + 64));
  for (const Member& member : group) {
    if (member.communicator->rank < seen.size()) seen[member.communicator->rank] = true;
  }
  const Member& first = group.front();
  for (std::uint32_t rank = 0; rank < seen.size(); ++rank) {
    if (seen[rank]) continue;
    const Step::Place left = step.place(stall.communicator, rank);
    if (left.recording == nullptr) {
      stall.missing.push_back(absent_member(step, *first.recording, *first.communicator, rank, sequence));
    } else if (left.communicator->entered < sequence) {
      stall.missing.push_back(missing_rank_of({left.recording, left.communicator}, Why::never_called));
    }
  }
}

/// Adds the ranks that have not made call `sequence`, though they are in no call before it.
void add_missing(const Group& group, const Step& step, std::uint64_t sequence, Stall& stall) {
  for (const Member& member : group) {
    const bool waits_before = member.recording->knows_ends() && member.is_held_up();
    if (member.entered() < sequence && !waits_before)
      stall.missing.push_back(missing_rank_of(member, Why::never_called));
  }
  if (group.size() < stall.members) add_absent(group, step, sequence, stall);
}

/// All have made the call. Adds those that keep it from ending all the same.
void add_slow(const Group& group, std::uint64_t sequence, Stall& stall) {
  const auto in_it = [&](const Member& member) { return member.waits() && member.blocking->sequence == sequence; };
  const bool alive_ones = std::ranges::any_of(
      group, [&](const Member& member) { return member.recording->writer == Writer::runs || !in_it(member); });
  for (const Member& member : group) {
    const bool still = member.recording->writer != Writer::runs;
    if (in_it(member) && still && alive_ones) stall.missing.push_back(missing_rank_of(member, Why::slow));
  }
  if (!stall.missing.empty()) return;
  const bool some_left = std::ranges::any_of(group, [&](const Member& member) { return member.entered() > sequence; });
  for (const Member& member : group) {
    if (some_left && in_it(member)) stall.missing.push_back(missing_rank_of(member, Why::slow));
  }
}

/// Where ends are unknown, nobody is held up unless somebody has not come: then the first who has gone on to a call
/// that the last one has not made.
const Member* first_ahead(const Group& group) {
  const auto last = std::ranges::min_element(group, {}, &Member::entered);
  const auto ahead = std::ranges::find_if(
      group, [&](const Member& member) { return member.entered() > last->entered() && member.waits(); });
  return ahead != group.end() ? &*ahead : nullptr;
}

/// A call that cannot end, and a member that is in it or has gone on to a later one.
struct Blocked {
  const Member* member;
  std::uint64_t sequence;
};

/// The oldest call that members are in. Where somebody is held up, a member that has only posted calls does not count.
std::optional<Blocked> oldest_call(const Group& group) {
  if (!group.front().recording->knows_ends()) {
    if (const Member* const ahead = first_ahead(group))
      return Blocked{ahead, std::ranges::min(group, {}, &Member::entered).entered() + 1};
  }
  const Member* first = nullptr;
  for (const Member& member : group) {
    if (!member.waits()) continue;
    const auto order = [](const Member& each) { return std::pair(!each.is_held_up(), each.blocking->sequence); };
    if (first == nullptr || order(member) < order(*first)) first = &member;
  }
  return first != nullptr ? std::optional(Blocked{first, first->blocking->sequence}) : std::nullopt;
}

/// All have made the call, but somebody waits in a later one, or in what comes after a call that was only posted, and a
/// rank that waits in no call has not made that one.
std::optional<Blocked> later_call(const Group& group) {
  if (!group.front().recording->knows_ends()) return std::nullopt;
  const Member* last = nullptr;
  for (const Member& member : group) {
    if (!member.is_held_up() && (last == nullptr || member.entered() < last->entered())) last = &member;
  }
  if (last == nullptr) return std::nullopt;
  const auto ahead = std::ranges::find_if(group, [last](const Member& member) {
    return member.is_held_up() && member.blocking->sequence > last->entered();
  });
  return ahead != group.end() ? std::optional(Blocked{&*ahead, last->entered() + 1}) : std::nullopt;
}

Stall stall_in(const Blocked& blocked) {
  const CallRecord* const call = blocked.member->call(blocked.sequence);
  const CommunicatorRecord& communicator = *blocked.member->communicator;
  const CallRecord& known = call != nullptr ? *call : *blocked.member->blocking;
  return {communicator.id, communicator.name, communicator.size, known};
}

/// Everybody who waits in a call and is not to blame. `missing` is sorted.
void add_waiting(const Group& group, Stall& stall) {
  const bool also_posted = stall.is_only_posted || !group.front().recording->knows_ends();
  for (const Member& member : group) {
    const bool is_to_blame = std::ranges::binary_search(stall.missing, member.rank(), {}, &MissingRank::rank);
    if (is_to_blame || !(also_posted ? member.waits() : member.is_held_up())) continue;
    stall.waiting.push_back(member.rank());
    const std::int64_t since = member.blocking->begin_ns();
    stall.since_ns = stall.since_ns == 0 ? since : std::min(stall.since_ns, since);
  }
  std::ranges::sort(stall.waiting);
}

/// What members must agree on for a call to match.
using Signature = std::array<std::uint64_t, 7>;
Signature signature_of(const CallRecord& call) {
  using calls::Operation;
  const bool same_bytes = call.operation == Operation::allreduce || call.operation == Operation::reduce ||
                          call.operation == Operation::broadcast || call.operation == Operation::reduce_scatter ||
                          call.operation == Operation::allgather || call.operation == Operation::alltoall;
  return {static_cast<std::uint64_t>(call.operation),
          call.tag,
          same_bytes ? call.bytes : 0,
          static_cast<std::uint64_t>(call.type),
          static_cast<std::uint64_t>(call.reduction),
          is_rooted(call.operation) ? static_cast<std::uint64_t>(call.peer) : 0,
          call.digest};
}

/// The same call of several members.
struct MadeCall {
  const Member* member;
  const CallRecord* call;
  Signature signature;
};

/// The number of the first call that not all have ended.
std::uint64_t first_open(const Group& group) {
  std::uint64_t first = std::numeric_limits<std::uint64_t>::max();
  for (const Member& member : group) {
    const bool in_it = member.blocking != nullptr && member.blocking->state != State::completed;
    first = std::min(first, in_it ? member.blocking->sequence : member.entered() + 1);
  }
  return first;
}

/// The first calls with one number, from `first` on, on which members differ; empty: they agree.
std::vector<MadeCall> first_difference(const Group& group, std::uint64_t first) {
  std::vector<MadeCall> calls;
  for (const Member& member : group) {
    for (const CallRecord* const call : member.calls) {
      if (call->sequence >= first || call->digest != 0) calls.push_back({&member, call, signature_of(*call)});
    }
  }
  std::ranges::stable_sort(calls, {}, [](const MadeCall& made) { return made.call->sequence; });
  for (auto begin = calls.begin(); begin != calls.end();) {
    const auto end = std::find_if(begin, calls.end(),
                                  [&](const MadeCall& made) { return made.call->sequence != begin->call->sequence; });
    // A type of the program's own may be what another rank calls by a name.
    if (std::any_of(begin, end, [](const MadeCall& made) { return size_of(made.call->type) == 0; }))
      std::for_each(begin, end, [](MadeCall& made) { made.signature[3] = 0; });
    if (std::any_of(begin, end, [](const MadeCall& made) { return made.call->digest == 0; }))
      std::for_each(begin, end, [](MadeCall& made) { made.signature[6] = 0; });
    if (std::any_of(begin, end, [&](const MadeCall& made) { return made.signature != begin->signature; }))
      return {begin, end};
    begin = end;
  }
  return {};
}

/// The signature that is right: that of most members, or else the only one that no member's past speaks against.
std::optional<Signature> right_signature(const std::vector<MadeCall>& calls, const Step& step) {
  constexpr std::size_t most_examined = 16;
  std::map<Signature, std::size_t> votes;
  for (const MadeCall& made : calls) ++votes[made.signature];
  const auto most = std::ranges::max_element(votes, {}, [](const auto& vote) { return vote.second; });
  const auto has_most = [&](const auto& vote) { return vote.second == most->second; };
  if (std::ranges::count_if(votes, has_most) == 1) return most->first;
  if (calls.size() > most_examined) return std::nullopt;
  std::array<std::map<Signature, bool>, 3> doubtful;  // by the rank's own past, by the others, by an unknown past
  for (const MadeCall& made : calls) {
    const Recording& recording = *made.member->recording;
    const Habit habit = habit_of(recording, *made.call);
    const CommonOrder order = common_order(step.recordings(), recording, *made.call);
    // If only a short past is known, even a call that most ranks make may look like a broken habit.
    const bool is_broken = (habit == Habit::broken && order != CommonOrder::kept) || habit == Habit::resized;
    doubtful[0][made.signature] |= is_broken;
    doubtful[1][made.signature] |= order == CommonOrder::left;
    doubtful[2][made.signature] |= habit == Habit::unknown;
  }
  for (const auto& each : doubtful) {
    const auto is_fine = [](const auto& signature) { return !signature.second; };
    if (std::ranges::count_if(each, is_fine) == 1) return std::ranges::find_if(each, is_fine)->first;
  }
  return std::nullopt;
}

/// The stall at the first call on which members differ. Whatever came after it is a consequence.
std::optional<Stall> differing_stall(const Group& group, const Step& step, std::uint64_t first) {
  const auto calls = first_difference(group, first);
  if (calls.empty()) return std::nullopt;
  const auto right = right_signature(calls, step);
  const auto example = right ? std::ranges::find(calls, *right, &MadeCall::signature) : calls.begin();
  Stall stall = stall_in({example->member, example->call->sequence});
  stall.is_tie = !right;
  for (const MadeCall& made : calls) {
    if (right && made.signature == *right) continue;
    stall.missing.push_back(missing_rank_of(*made.member, Why::differs));
    stall.missing.back().last = made.call;
  }
  return stall;
}

std::optional<Stall> unended_stall(const Group& group, const Step& step) {
  const auto oldest = oldest_call(group);
  if (!oldest) return std::nullopt;
  Stall stall = stall_in(*oldest);
  add_missing(group, step, oldest->sequence, stall);
  if (const auto later = later_call(group); later && stall.missing.empty()) {
    stall = stall_in(*later);
    add_missing(group, step, later->sequence, stall);
  }
  const bool all_have_come = stall.missing.empty();
  if (all_have_come) add_slow(group, oldest->sequence, stall);
  if (stall.missing.empty()) return std::nullopt;
  stall.may_have_ended = all_have_come && !group.front().recording->knows_ends();
  stall.is_only_posted = group.front().recording->knows_ends() && !oldest->member->is_held_up();
  return stall;
}

/// libamldist ends no call that follows one on which ranks differ, and may have ended that one.
bool has_failed_later(const Group& group) {
  return std::ranges::any_of(group, [](const Member& member) {
    return member.recording->source == "amldist" && member.blocking != nullptr &&
           member.blocking->state == State::failed;
  });
}

/// Nobody's call is known to differ from those that MPI has failed because a message was too long.
std::optional<Stall> cut_stall(const Group& group) {
  std::optional<Stall> stall;
  for (const Member& member : group) {
    const CallRecord* const failed = given_up_in(*member.recording);
    if (failed == nullptr || failed != member.blocking || failed->status != recorder_format::too_long) continue;
    if (!stall) stall = stall_in({&member, failed->sequence});
    stall->is_tie = true;
    if (failed->sequence == stall->call.sequence)
      stall->missing.push_back({Why::cut_short, member.rank(), member.recording, failed});
  }
  return stall;
}

std::optional<Stall> collective_stall(const Group& group, const Step& step) {
  auto stall = differing_stall(group, step, has_failed_later(group) ? 0 : first_open(group));
  if (!stall) stall = cut_stall(group);
  if (!stall) stall = unended_stall(group, step);
  if (!stall) return std::nullopt;
  // MPI may end a call whose sizes or roots differ, and get stuck, or end the program, in a later one.
  const auto is_in_it = [call = stall->call.sequence](const MissingRank& each) {
    return each.why == Why::slow || (each.why == Why::gone && each.last != nullptr && each.last->sequence == call);
  };
  if (std::ranges::all_of(stall->missing, is_in_it) && group.front().recording->knows_ends())
    if (auto earlier = differing_stall(group, step, 0)) stall = std::move(earlier);
  std::ranges::sort(stall->missing, {}, &MissingRank::rank);
  add_waiting(group, *stall);
  if (stall->since_ns == 0) stall->since_ns = stall->call.begin_ns();
  return stall;
}

/// A rank that goes on making calls does not stand still: the wait for it counts from its last one.
void count_from_last_call(const Step& step, Stall& stall) {
  std::int64_t longest_ago = std::numeric_limits<std::int64_t>::max();
  for (const MissingRank& each : stall.missing) {
    if (each.why != Why::never_called) return;
    longest_ago = std::min(longest_ago, step.last_call_ns(each.rank));
  }
  if (!stall.missing.empty()) stall.since_ns = std::max(stall.since_ns, longest_ago);
}

Stall message_stall(const Recording& recording, const CommunicatorRecord& own, const CallRecord& call) {
  Stall stall{own.id, own.name, own.size, call, call.begin_ns()};
  stall.waiting = {recording.rank};
  return stall;
}

MissingRank missing_rank_of(const Step::Place& place) {
  Member member{place.recording, place.communicator};
  for (auto call = place.recording->calls.rbegin(); call != place.recording->calls.rend(); ++call) {
    const bool own = call->communicator == place.communicator->slot && call->sequence != 0;
    if (!own || !is_collective(call->operation)) continue;
    member.calls = {&*call};
    break;
  }
  return missing_rank_of(member, Why::never_called);
}

/// A rank that is gone after a call that libamldist failed did wait in it.
bool has_died_of(const Recording& recording, const CallRecord& call) {
  return call.state == State::failed && recording.source == "amldist" && recording.writer == Writer::gone &&
         &call == &recording.calls.back();
}

/// A send or receive whose peer is in no call with this rank; nullopt if it is. A receive from any rank waits for those
/// that wait for nobody themselves; where all wait, for one of them. On a communicator that this rank has closed
/// nothing waits any more.
std::optional<Stall> message_stall(const Recording& recording, const CallRecord& call, const Step& step) {
  const auto* const own = recording.communicator(call.communicator);
  const bool waits = call.pending() || has_died_of(recording, call);
  if (is_collective(call.operation) || !waits || own == nullptr || own->closed) return std::nullopt;
  Stall stall = message_stall(recording, *own, call);
  if (call.peer == any_peer) {
    if (step.is_sent(*own, call.tag)) return std::nullopt;
    for (const Step::Place& each : step.idle(*own)) stall.missing.push_back(missing_rank_of(each));
    return stall.missing.empty() ? std::nullopt : std::optional(std::move(stall));
  }
  if (call.peer < 0) return std::nullopt;
  const auto peer = static_cast<std::uint32_t>(call.peer);
  const Step::Place partner = step.place(own->id, peer);
  if (partner.recording == nullptr) {
    constexpr std::uint64_t not_the_first = 2;
    stall.missing.push_back(absent_member(step, recording, *own, peer, not_the_first));
  } else if (partner.recording->writer == Writer::runs && step.has_posted(*own, peer, call)) {
    return std::nullopt;
  } else {
    stall.missing.push_back(missing_rank_of(partner));
  }
  return stall;
}

/// Where ends are unknown, a rank that is stopped or gone counts as in its newest call on every communicator. If it has
/// not come to a call on one of them, the others wait there.
void drop_what_may_have_ended(std::vector<Stall>& stalls) {
  std::set<std::uint32_t> absent;
  for (const Stall& each : stalls) {
    if (each.may_have_ended) continue;
    for (const MissingRank& rank : each.missing) absent.insert(rank.rank);
  }
  std::erase_if(stalls, [&](const Stall& each) {
    return each.may_have_ended &&
           std::ranges::any_of(each.missing, [&](const MissingRank& rank) { return absent.contains(rank.rank); });
  });
}

std::vector<Stall> collective_stalls(const Step& step) {
  std::vector<Stall> stalls;
  for (const auto& [id, group] : step.groups()) {
    if (auto stall = collective_stall(group, step)) stalls.push_back(std::move(*stall));
  }
  drop_what_may_have_ended(stalls);
  return stalls;
}

}  // namespace

std::vector<Stall> find_stalls(std::span<const Recording> recordings) {
  const Step step(recordings);
  auto stalls = collective_stalls(step);
  const bool has_collective = !stalls.empty();
  for (const Recording& recording : recordings) {
    if (has_collective) break;
    for (const CallRecord& call : recording.calls) {
      auto stall = call.peer != any_peer ? message_stall(recording, call, step) : std::nullopt;
      if (!stall) continue;
      stalls.push_back(std::move(*stall));
      break;
    }
  }
  for (Stall& each : stalls) count_from_last_call(step, each);
  return stalls;
}

std::vector<Stall> find_all_stalls(std::span<const Recording> recordings) {
  const Step step(recordings);
  auto stalls = collective_stalls(step);
  std::erase_if(stalls, [](const Stall& each) { return each.is_only_posted; });
  for (const Recording& recording : recordings) {
    for (const CallRecord& call : recording.calls) {
      if (call.state != State::started && !has_died_of(recording, call)) continue;
      if (auto stall = message_stall(recording, call, step)) stalls.push_back(std::move(*stall));
    }
  }
  for (Stall& each : stalls) count_from_last_call(step, each);
  return stalls;
}

}  // namespace amldist::trace
