#include "trace/diagnosis/stalls.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "base/text/text.hpp"
#include "calls/call_text.hpp"

namespace amldist::trace {
namespace {

using recorder_format::is_collective;
using recorder_format::State;
using text::concat;

/// One process's view of one communicator.
struct Member {
  const Recording* recording;
  const CommunicatorRecord* communicator;
  const CallRecord* newest = nullptr;  ///< newest collective call on it; nullptr: the file has none

  [[nodiscard]] bool waits() const {
    return newest != nullptr && (newest->pending() || newest->state == State::failed);
  }
  /// Not only posted: the program waits in it, or did when it failed.
  [[nodiscard]] bool is_held_up() const {
    return newest != nullptr && (newest->state == State::started || newest->state == State::failed);
  }
  [[nodiscard]] std::uint64_t entered() const { return communicator->entered; }
  [[nodiscard]] std::uint32_t rank() const { return recording->rank; }
};

const CallRecord* newest_collective(const Recording& recording, std::uint32_t slot) {
  const auto& calls = recording.calls;
  const auto found = std::find_if(calls.rbegin(), calls.rend(), [slot](const CallRecord& call) {
    return call.communicator == slot && call.sequence != 0 && is_collective(call.operation);
  });
  return found != calls.rend() ? &*found : nullptr;
}

/// NCCL's host does not say when the device ends a call, and PyTorch's hooks see an end late, or never in a process
/// that is stopped. So a rank's newest call stays open.
bool ends_are_unknown(const Recording& recording) { return recording.source == "nccl" || recording.source == "torch"; }

/// The oldest call on a communicator that has not ended, of those that somebody waits in if there are any. With
/// asynchronous calls the newest is not the one that blocks, nor is one that was posted and is not waited for yet.
const CallRecord* oldest_unended(const Recording& recording, std::uint32_t slot) {
  const CallRecord* oldest = nullptr;
  for (const CallRecord& call : recording.calls) {
    if (call.communicator != slot || call.sequence == 0 || !is_collective(call.operation) || !call.pending()) continue;
    if (oldest == nullptr) oldest = &call;
    if (ends_are_unknown(recording) || call.state != State::started) continue;
    if (oldest->state != State::started || call.sequence < oldest->sequence) oldest = &call;
  }
  return oldest != nullptr ? oldest : newest_collective(recording, slot);
}

using Group = std::vector<Member>;

std::map<std::uint64_t, Group> groups_of(std::span<const Recording> recordings) {
  std::map<std::uint64_t, Group> groups;
  for (const Recording& recording : recordings) {
    for (const CommunicatorRecord& communicator : recording.communicators) {
      if (communicator.closed || communicator.id == recorder_format::unjudged_id) continue;
      groups[communicator.id].push_back({&recording, &communicator, oldest_unended(recording, communicator.slot)});
    }
  }
  return groups;
}

const CallRecord* call_with(const Member& member, std::uint64_t sequence) {
  const auto found = std::ranges::find_if(member.recording->calls, [&](const CallRecord& call) {
    return call.communicator == member.communicator->slot && call.sequence == sequence && is_collective(call.operation);
  });
  return found != member.recording->calls.end() ? &*found : nullptr;
}

MissingRank missing_rank_of(const Member& member, MissingRank::Why why) {
  if (why != MissingRank::Why::differs && member.recording->writer == Writer::stopped) why = MissingRank::Why::stopped;
  if (why != MissingRank::Why::differs && member.recording->writer == Writer::gone) why = MissingRank::Why::gone;
  std::optional<CallRecord> last;
  if (const CallRecord* const call = newest_collective(*member.recording, member.communicator->slot)) last = *call;
  const CallRecord* const unjudged = why == MissingRank::Why::never_called || why == MissingRank::Why::no_recorder
                                         ? member.recording->unjudged_wait()
                                         : nullptr;
  return {why,
          member.rank(),
          member.recording->host,
          last,
          member.recording->local_rank,
          unjudged != nullptr ? std::optional(*unjudged) : std::nullopt};
}

/// A rank that has a recorder, but has never had this communicator: it has not made the call that would give it one.
/// One whose slots are all in use may have it all the same.
std::optional<MissingRank> not_yet_member(std::span<const Recording> recordings, const Member& other,
                                          std::uint32_t rank, std::uint64_t sequence) {
  const auto found = std::ranges::find_if(
      recordings, [&](const Recording& each) { return each.rank == rank && each.source == other.recording->source; });
  if (other.communicator->world_ranks.empty() || found == recordings.end()) return std::nullopt;
  CommunicatorRecord none;
  if (found->lacks_slots()) return missing_rank_of({&*found, &none}, MissingRank::Why::no_recorder);
  if (sequence != 1) return std::nullopt;
  none.id = other.communicator->id;
  const bool had_it = std::ranges::find(found->communicators, none.id, &CommunicatorRecord::id) !=
                      found->communicators.end();  // and has closed it
  if (had_it) return std::nullopt;
  return missing_rank_of({&*found, &none}, MissingRank::Why::never_called);
}

void add_absent(const Group& group, std::span<const Recording> recordings, std::uint64_t sequence, Stall& stall) {
  std::vector<bool> seen(std::min<std::size_t>(stall.members, group.size() + 64));
  for (const Member& member : group) {
    if (member.communicator->rank < seen.size()) seen[member.communicator->rank] = true;
  }
  const auto& world_ranks = group.front().communicator->world_ranks;
  for (std::size_t rank = 0; rank < seen.size(); ++rank) {
    if (seen[rank]) continue;
    const auto in_step = rank < world_ranks.size() ? world_ranks[rank] : static_cast<std::uint32_t>(rank);
    const auto known = not_yet_member(recordings, group.front(), in_step, sequence);
    stall.missing.push_back(known.value_or(MissingRank{MissingRank::Why::no_recorder, in_step, "", {}}));
  }
}

bool has_root(calls::Operation operation) noexcept {
  return operation == calls::Operation::broadcast || operation == calls::Operation::reduce ||
         operation == calls::Operation::gather || operation == calls::Operation::scatter ||
         operation == recorder_format::other::gatherv || operation == recorder_format::other::scatterv;
}

/// What members must agree on for a call to match.
std::array<std::uint64_t, 5> signature(const CallRecord& call, bool with_type) {
  const bool same_bytes = call.operation == calls::Operation::allreduce || call.operation == calls::Operation::reduce ||
                          call.operation == calls::Operation::broadcast ||
                          call.operation == calls::Operation::reduce_scatter ||
                          call.operation == calls::Operation::allgather || call.operation == calls::Operation::alltoall;
  return {static_cast<std::uint64_t>(call.operation), same_bytes ? call.bytes : 0,
          with_type ? static_cast<std::uint64_t>(call.type) : 0, static_cast<std::uint64_t>(call.reduction),
          has_root(call.operation) ? static_cast<std::uint64_t>(call.peer) : 0};
}

/// Adds members whose call differs from the majority's. In a tie, the call of the lowest rank is taken as right.
void add_differing(const Group& group, std::uint64_t sequence, Stall& stall) {
  // A type of the program's own may be what another rank calls by a name.
  const bool with_type = std::ranges::all_of(group, [&](const Member& member) {
    const CallRecord* const call = call_with(member, sequence);
    return call == nullptr || size_of(call->type) != 0;
  });
  const auto signed_as = [with_type](const CallRecord& call) { return signature(call, with_type); };
  std::map<std::array<std::uint64_t, 5>, std::size_t> votes;
  for (const Member& member : group) {
    if (const CallRecord* const call = call_with(member, sequence)) ++votes[signed_as(*call)];
  }
  if (votes.size() < 2) return;
  const CallRecord* right = nullptr;
  for (const Member& member : group) {
    const CallRecord* const call = call_with(member, sequence);
    if (call != nullptr && (right == nullptr || votes[signed_as(*call)] > votes[signed_as(*right)])) right = call;
  }
  stall.call = *right;
  for (const Member& member : group) {
    const CallRecord* const call = call_with(member, sequence);
    if (call == nullptr || signed_as(*call) == signed_as(*right)) continue;
    MissingRank straggler = missing_rank_of(member, MissingRank::Why::differs);
    straggler.last = *call;
    stall.missing.push_back(std::move(straggler));
  }
}

/// Adds the ranks that have not made call `sequence`, though they are in no call before it, or have made another one.
void add_missing(const Group& group, std::span<const Recording> recordings, std::uint64_t sequence, Stall& stall) {
  for (const Member& member : group) {
    const bool waits_before = !ends_are_unknown(*member.recording) && member.is_held_up();
    if (member.entered() < sequence && !waits_before)
      stall.missing.push_back(missing_rank_of(member, MissingRank::Why::never_called));
  }
  if (group.size() < stall.members) add_absent(group, recordings, sequence, stall);
  add_differing(group, sequence, stall);
}

/// All have made the call. Adds those that keep it from ending all the same.
void add_slow(const Group& group, std::uint64_t sequence, Stall& stall) {
  const auto in_it = [&](const Member& member) { return member.waits() && member.newest->sequence == sequence; };
  const bool alive_ones = std::ranges::any_of(
      group, [&](const Member& member) { return member.recording->writer == Writer::runs || !in_it(member); });
  for (const Member& member : group) {
    const bool still = member.recording->writer != Writer::runs;
    if (in_it(member) && still && alive_ones) stall.missing.push_back(missing_rank_of(member, MissingRank::Why::slow));
  }
  if (!stall.missing.empty()) return;
  const bool some_left = std::ranges::any_of(group, [&](const Member& member) { return member.entered() > sequence; });
  for (const Member& member : group) {
    if (some_left && in_it(member)) stall.missing.push_back(missing_rank_of(member, MissingRank::Why::slow));
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

/// The oldest call that members are in. Where somebody is held up, who has only posted calls does not count.
std::optional<Blocked> oldest_call(const Group& group) {
  if (ends_are_unknown(*group.front().recording)) {
    if (const Member* const ahead = first_ahead(group))
      return Blocked{ahead, std::ranges::min(group, {}, &Member::entered).entered() + 1};
  }
  const Member* first = nullptr;
  for (const Member& member : group) {
    if (!member.waits()) continue;
    const auto order = [](const Member& each) { return std::pair(!each.is_held_up(), each.newest->sequence); };
    if (first == nullptr || order(member) < order(*first)) first = &member;
  }
  return first != nullptr ? std::optional(Blocked{first, first->newest->sequence}) : std::nullopt;
}

/// All have made the call, but somebody waits in a later one, or in what comes after a call that was only posted, and a
/// rank that waits in none has not made that one.
std::optional<Blocked> later_call(const Group& group) {
  if (ends_are_unknown(*group.front().recording)) return std::nullopt;
  const Member* last = nullptr;
  for (const Member& member : group) {
    if (!member.is_held_up() && (last == nullptr || member.entered() < last->entered())) last = &member;
  }
  if (last == nullptr) return std::nullopt;
  const auto ahead = std::ranges::find_if(
      group, [last](const Member& member) { return member.is_held_up() && member.newest->sequence > last->entered(); });
  return ahead != group.end() ? std::optional(Blocked{&*ahead, last->entered() + 1}) : std::nullopt;
}

Stall stall_in(const Blocked& blocked) {
  const CallRecord* const call = call_with(*blocked.member, blocked.sequence);
  const CommunicatorRecord& communicator = *blocked.member->communicator;
  const CallRecord& known = call != nullptr ? *call : *blocked.member->newest;
  return {communicator.id, communicator.name, communicator.size, known, 0, {}, {}, false};
}

/// Everybody who waits in a call and is not to blame.
void add_waiting(const Group& group, Stall& stall) {
  const bool also_posted = stall.is_only_posted || ends_are_unknown(*group.front().recording);
  for (const Member& member : group) {
    const bool is_to_blame = std::ranges::find(stall.missing, member.rank(), &MissingRank::rank) != stall.missing.end();
    if (is_to_blame || !(also_posted ? member.waits() : member.is_held_up())) continue;
    stall.waiting.push_back(member.rank());
    const std::int64_t since = member.newest->begin_ns();
    stall.since_ns = stall.since_ns == 0 ? since : std::min(stall.since_ns, since);
  }
  std::ranges::sort(stall.waiting);
}

std::optional<Stall> collective_stall(const Group& group, std::span<const Recording> recordings) {
  const auto oldest = oldest_call(group);
  if (!oldest) return std::nullopt;
  Stall stall = stall_in(*oldest);
  add_missing(group, recordings, oldest->sequence, stall);
  if (const auto later = later_call(group); later && stall.missing.empty()) {
    stall = stall_in(*later);
    add_missing(group, recordings, later->sequence, stall);
  }
  const bool all_have_come = stall.missing.empty();
  if (all_have_come) add_slow(group, oldest->sequence, stall);
  if (stall.missing.empty()) return std::nullopt;
  stall.may_have_ended = all_have_come && ends_are_unknown(*group.front().recording);
  stall.is_only_posted = !ends_are_unknown(*group.front().recording) && !oldest->member->is_held_up();
  add_waiting(group, stall);
  std::ranges::sort(stall.missing, {}, &MissingRank::rank);
  return stall;
}

/// What is asked about a step again and again.
class Step {
 public:
  explicit Step(std::span<const Recording> recordings) : recordings_(recordings) {
    for (const Recording& each : recordings) add(each);
  }

  /// A rank of a communicator, whether it still has that communicator or not.
  [[nodiscard]] std::optional<Member> member(std::uint64_t communicator, std::uint32_t rank) const {
    const auto found = members_.find(std::pair(communicator, rank));
    return found != members_.end() ? std::optional(found->second) : std::nullopt;
  }

  /// When a rank of the step last began or ended a call; 0: it has made none that is known.
  [[nodiscard]] std::int64_t last_call_ns(std::uint32_t rank) const {
    const auto found = last_call_ns_.find(rank);
    return found != last_call_ns_.end() ? found->second : 0;
  }

  /// Tags of the messages to a rank of a communicator that somebody waits to be rid of. One that was only posted may
  /// have arrived long ago.
  [[nodiscard]] std::span<const std::uint16_t> tags_sent_to(std::uint64_t communicator, std::uint32_t rank) const {
    const auto found = sent_.find(std::pair(communicator, rank));
    return found != sent_.end() ? std::span<const std::uint16_t>(found->second) : std::span<const std::uint16_t>();
  }

  /// Recordings of ranks that wait in no call, at most so many that a list of them still tells something.
  [[nodiscard]] std::span<const Recording* const> idle() const { return idle_; }
  [[nodiscard]] std::span<const Recording> recordings() const { return recordings_; }

 private:
  void add(const Recording& recording) {
    constexpr std::size_t most_idle = 64;
    for (const CommunicatorRecord& each : recording.communicators)
      members_.try_emplace(std::pair(each.id, each.rank), Member{&recording, &each});
    std::int64_t& last = last_call_ns_[recording.rank];
    bool waits = false;
    for (const CallRecord& call : recording.calls) {
      last = std::max({last, call.enqueued_ns, call.started_ns, call.ended_ns});
      waits |= call.state == State::started;
      if (call.operation == calls::Operation::send && call.state == State::started && call.peer >= 0)
        add_send(recording, call);
    }
    const bool is_idle = !waits || recording.writer != Writer::runs;
    if (is_idle && idle_.size() < most_idle) idle_.push_back(&recording);
  }

  void add_send(const Recording& recording, const CallRecord& call) {
    const auto* const communicator = recording.communicator(call.communicator);
    if (communicator != nullptr)
      sent_[std::pair(communicator->id, static_cast<std::uint32_t>(call.peer))].push_back(call.tag);
  }

  std::span<const Recording> recordings_;
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::vector<std::uint16_t>> sent_;  ///< as members_
  std::map<std::pair<std::uint64_t, std::uint32_t>, Member> members_;  ///< by communicator and rank in it
  std::map<std::uint32_t, std::int64_t> last_call_ns_;
  std::vector<const Recording*> idle_;
};

/// A rank that goes on making calls does not stand still: the wait for it counts from its last one.
void count_from_last_call(const Step& step, Stall& stall) {
  std::int64_t longest_ago = std::numeric_limits<std::int64_t>::max();
  for (const MissingRank& each : stall.missing) {
    if (each.why != MissingRank::Why::never_called) return;
    longest_ago = std::min(longest_ago, step.last_call_ns(each.rank));
  }
  if (!stall.missing.empty()) stall.since_ns = std::max(stall.since_ns, longest_ago);
}

bool tags_fit(std::uint16_t one, std::uint16_t other) noexcept {
  return one == other || one == recorder_format::any_tag || other == recorder_format::any_tag;
}

/// Whether the peer of a message is in the call that belongs to it.
bool has_come(const Member& partner, const CommunicatorRecord& own, const CallRecord& call) {
  return std::ranges::any_of(partner.recording->calls, [&](const CallRecord& other) {
    const bool meets = other.peer == static_cast<std::int32_t>(own.rank) || other.peer == recorder_format::any_peer;
    return other.pending() && !is_collective(other.operation) && other.operation != call.operation && meets &&
           other.communicator == partner.communicator->slot && tags_fit(other.tag, call.tag);
  });
}

/// A send or receive whose peer is in no call with this rank; nullopt if it is, or if the call may have any peer. On a
/// communicator that this rank has closed nothing waits any more.
std::optional<Stall> partner_stall(const Recording& recording, const CallRecord& call, const Step& step) {
  const auto* const own = recording.communicator(call.communicator);
  const bool waits = call.pending() && own != nullptr && !own->closed;
  if (is_collective(call.operation) || !waits || call.peer < 0) return std::nullopt;
  const auto peer = static_cast<std::uint32_t>(call.peer);
  Stall stall{own->id, own->name, own->size, call, call.begin_ns(), {recording.rank}, {}};
  const auto partner = step.member(own->id, peer);
  if (!partner) {
    const std::uint32_t in_step = peer < own->world_ranks.size() ? own->world_ranks[peer] : peer;
    stall.missing.push_back({MissingRank::Why::no_recorder, in_step, "", {}});
  } else if (partner->recording->writer != Writer::runs || !has_come(*partner, *own, call)) {
    stall.missing.push_back(missing_rank_of(*partner, MissingRank::Why::never_called));
  } else {
    return std::nullopt;
  }
  return stall;
}

/// Whether somebody sends what this call may receive.
bool is_any_sent(const CommunicatorRecord& own, const CallRecord& call, const Step& step) {
  return std::ranges::any_of(step.tags_sent_to(own.id, own.rank),
                             [&](std::uint16_t tag) { return tags_fit(tag, call.tag); });
}

/// A receive from any rank. It waits for those that wait for nobody themselves; where all wait, for one of them.
std::optional<Stall> any_source_stall(const Recording& recording, const CallRecord& call, const Step& step) {
  const auto* const own = recording.communicator(call.communicator);
  if (own == nullptr || own->closed || call.peer != recorder_format::any_peer || is_any_sent(*own, call, step))
    return std::nullopt;
  Stall stall{own->id, own->name, own->size, call, call.begin_ns(), {recording.rank}, {}};
  const auto add = [&](const Recording& other) {
    const auto in_it = std::ranges::find(other.communicators, own->id, &CommunicatorRecord::id);
    if (&other == &recording || in_it == other.communicators.end()) return;
    stall.missing.push_back(missing_rank_of({&other, &*in_it}, MissingRank::Why::never_called));
  };
  for (const Recording* const each : step.idle()) add(*each);
  for (const Recording& each : step.recordings()) {
    if (stall.missing.empty()) add(each);
  }
  return stall.missing.empty() ? std::nullopt : std::optional(std::move(stall));
}

/// "rank 3 waits", "ranks 0-2,5 wait".
std::string with_ranks(std::span<const std::uint32_t> ranks, std::string_view one, std::string_view more) {
  return concat({ranks.size() == 1 ? "rank " : "ranks ", compress_ranks(ranks), ranks.size() == 1 ? one : more});
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
  for (const auto& [id, group] : groups_of(step.recordings())) {
    if (auto stall = collective_stall(group, step.recordings())) stalls.push_back(std::move(*stall));
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
      auto stall = partner_stall(recording, call, step);
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
      if (call.state != State::started) continue;
      if (auto stall = partner_stall(recording, call, step)) stalls.push_back(std::move(*stall));
      if (auto stall = any_source_stall(recording, call, step)) stalls.push_back(std::move(*stall));
    }
  }
  for (Stall& each : stalls) count_from_last_call(step, each);
  return stalls;
}

std::string_view name_of(calls::Operation operation) noexcept {
  constexpr std::array<std::string_view, 12> of_all = {"gatherv",   "scatterv",        "scan",     "exscan",
                                                       "alltoallw", "reduce_scatter",  "neighbor", "create",
                                                       "one_sided", "persistent_init", "file_io",  "window"};
  constexpr std::array<std::string_view, 2> of_two = {"sendrecv", "probe"};
  constexpr std::size_t first_of_all = 128;
  constexpr std::size_t first_of_two = 192;
  const auto number = static_cast<std::size_t>(operation);
  if (number >= first_of_two && number - first_of_two < of_two.size()) return of_two[number - first_of_two];
  if (number >= first_of_all && number - first_of_all < of_all.size()) return of_all[number - first_of_all];
  return to_string(operation);
}

std::string describe_call(const CallRecord& call) {
  constexpr std::uint8_t first_other = 128;
  const std::uint64_t size = size_of(call.type);
  std::string words;
  if (static_cast<std::uint8_t>(call.operation) < first_other && size != 0) {
    words = describe(calls::CallNumbers{call.operation, call.sequence, call.bytes / size, call.type});
  } else {
    words = name_of(call.operation);
    if (call.sequence != 0) words += concat({" #", std::to_string(call.sequence)});
    if (call.bytes != 0) words += concat({" (", calls::describe_bytes(call.bytes), ")"});
  }
  if (is_collective(call.operation)) return words;
  const std::string_view towards = call.operation == calls::Operation::send ? " to " : " from ";
  if (call.peer >= 0) words += concat({towards, "rank ", std::to_string(call.peer)});
  if (call.peer == recorder_format::any_peer) words += concat({towards, "any rank"});
  return words;
}

std::string compress_ranks(std::span<const std::uint32_t> ranks) {
  std::string out;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i;
    while (end + 1 < ranks.size() && ranks[end + 1] == ranks[end] + 1) ++end;
    if (!out.empty()) out += ",";
    out += std::to_string(ranks[i]);
    if (end > i) out += concat({end == i + 1 ? "," : "-", std::to_string(ranks[end])});
    i = end + 1;
  }
  return out;
}

std::string describe_difference(const CallRecord& call, const CallRecord& others) {
  const bool by_root = call.operation == others.operation && has_root(call.operation) && call.peer != others.peer;
  if (!by_root || call.peer < 0 || others.peer < 0) return concat({describe_call(call), " instead"});
  return concat({describe_call(call), " with root ", std::to_string(call.peer), " instead of root ",
                 std::to_string(others.peer)});
}

std::string describe_unjudged_wait(const CallRecord& call) {
  return concat({"waits in ", describe_call(call), " on a communicator that is not judged"});
}

std::string sentence(const MissingRank& straggler, const CallRecord* call) {
  using Why = MissingRank::Why;
  const std::string who =
      concat({"rank ", std::to_string(straggler.rank), straggler.host.empty() ? "" : concat({" on ", straggler.host})});
  const std::string last = straggler.last ? describe_call(*straggler.last) : "";
  const std::string in_last = last.empty() ? "" : concat({straggler.last->pending() ? " in " : " after ", last});
  if (straggler.unjudged_wait) return concat({who, " ", describe_unjudged_wait(*straggler.unjudged_wait)});
  switch (straggler.why) {
    case Why::never_called:
      return concat({who, " has not called it", last.empty() ? "" : concat({" (its last was ", last, ")"})});
    case Why::stopped:
      return concat({who, " is stopped", in_last});
    case Why::gone:
      return concat({who, " is gone", in_last});
    case Why::slow:
      return concat({who, " is still in it"});
    case Why::differs:
      if (call != nullptr && straggler.last)
        return concat({who, " called ", describe_difference(*straggler.last, *call)});
      return concat({who, " called ", last, " instead"});
    case Why::no_recorder:
      break;
  }
  return concat({who, " has no recorder here"});
}

std::string sentence(const Stall& stall) {
  constexpr std::size_t most_named = 4;
  std::vector<std::uint32_t> unrecorded;
  std::vector<std::string> clauses;
  std::size_t unnamed = 0;
  for (const MissingRank& straggler : stall.missing) {
    if (straggler.why == MissingRank::Why::no_recorder && !straggler.unjudged_wait)
      unrecorded.push_back(straggler.rank);
    else if (clauses.size() < most_named) clauses.push_back(sentence(straggler, &stall.call));
    else ++unnamed;
  }
  if (unnamed > 0) clauses.push_back(concat({"and ", text::count(unnamed, "more rank")}));
  if (!unrecorded.empty()) clauses.push_back(with_ranks(unrecorded, " has no recorder here", " have no recorder here"));
  const std::vector<std::string_view> views(clauses.begin(), clauses.end());
  return concat({describe_call(stall.call), ": ", text::join(views), stall.waiting.empty() ? "" : "; ",
                 stall.waiting.empty() ? "" : with_ranks(stall.waiting, " waits", " wait")});
}

}  // namespace amldist::trace
