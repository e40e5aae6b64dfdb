// The sentences that stalls.hpp declares.
#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/text.hpp"
#include "trace/diagnosis/stalls.hpp"

namespace amldist::trace {

using text::concat;

namespace {

bool is_known_dead(const Recording& recording) {
  return recording.source != without_file && recording.ending != recorder_format::Ending::well;
}

std::string_view end_of(const Recording& recording) {
  if (recording.has_exited) return " has ended with status 0";
  return is_known_dead(recording) ? " is dead" : " has ended";
}

/// A rank that may be wrong, or the other one.
std::string in_doubt(const MissingRank& rank) {
  const std::string host = rank.host().empty() ? "" : concat({" on ", rank.host()});
  return concat({"rank ", std::to_string(rank.rank), host});
}

}  // namespace

std::string call_of_group(const Stall& stall) {
  const bool of_all = stall.communicator_name.empty() || stall.communicator_name == "world";
  const std::string call = stall.is_tie && !stall.is_message() ? concat({"call #", std::to_string(stall.call.sequence)})
                                                               : describe_call(stall.call);
  return concat({call, of_all ? "" : concat({" of group '", stall.communicator_name, "'"})});
}

std::string sentence(const Stall& stall, const MissingRank& missing, std::uint64_t seconds) {
  const Recording* const recording = missing.recording;
  const std::string who =
      stall.is_tie ? in_doubt(missing)
                   : describe_rank(missing.rank, recording != nullptr ? recording->local_rank : 0, missing.host());
  const std::string time = seconds == 0 ? "" : concat({" for ", std::to_string(seconds), " s"});
  const std::string last = missing.last != nullptr ? describe_call(*missing.last) : "";
  const bool is_in_it =
      missing.last != nullptr && missing.last->pending() && recording != nullptr && recording->knows_ends();
  const std::string doing = missing.last != nullptr ? concat({is_in_it ? " in " : " after ", last}) : "";
  if (missing.unjudged_wait != nullptr) {
    const bool is_access = missing.unjudged_wait->operation == recorder_format::other::window;
    return concat({who, " waits in ", describe_call(*missing.unjudged_wait),
                   is_access ? ", and for whom is not known" : " on a communicator that is not judged", time});
  }
  const std::string does = recording == nullptr         ? ""
                           : !recording->remark.empty() ? recording->remark
                                                        : describe(recording->activity);
  const std::string instead = does.empty() ? "" : concat({": ", does});
  switch (missing.why) {
    case MissingRank::Why::never_called:
      if (stall.is_message() && std::ranges::find(stall.waiting, missing.rank) != stall.waiting.end())
        return concat({who, " waits for itself: both directions must begin before either is waited for"});
      if (stall.is_message() && missing.is_finalizing())
        return concat({who, " has come to ", last, " without it", time});
      return concat({who, stall.is_message() ? " has not met it" : " has not called it", time, instead});
    case MissingRank::Why::stopped:
      if (recording != nullptr && recording->writer == Writer::silent)
        return concat({who, " does not answer (stopped, or its node is gone)"});
      return concat({who, " is stopped", doing, time});
    case MissingRank::Why::gone:
      return concat({who, recording != nullptr ? end_of(*recording) : "", doing});
    case MissingRank::Why::slow:
      return concat({who, " is still in it", time});
    case MissingRank::Why::differs:
      if (missing.last == nullptr)
        return concat({who, stall.is_tie ? " has left it" : " made another call", ", of which no record is left"});
      return concat({who, " called ",
                     stall.is_tie ? describe_in_full(*missing.last) : describe_difference(*missing.last, stall.call)});
    case MissingRank::Why::alone:
      return concat({who, " is alone in it", time, ": the others have ended without it"});
    case MissingRank::Why::cut_short:
      return concat({who, " received a message in it that was too long"});
    case MissingRank::Why::no_recorder:
      break;
  }
  const bool may_have_come = recording != nullptr && recording->source != without_file;
  return concat(
      {who, may_have_come ? " may not have called it: not all of its groups are known" : " has no recorder", instead});
}

std::string sentence(const Stall& stall, std::uint64_t seconds, std::size_t waiting) {
  constexpr std::size_t most_named = 4;
  const auto is_unknown = [](const MissingRank& each) {
    return each.why == MissingRank::Why::no_recorder && each.recording == nullptr;
  };
  std::vector<std::string> clauses;
  std::vector<std::uint32_t> unknown;
  std::vector<std::uint32_t> of_group;
  std::size_t unnamed = 0;
  for (const MissingRank& each : stall.missing) {
    if (is_unknown(each)) (each.is_in_group_only ? of_group : unknown).push_back(each.rank);
    else if (clauses.size() < most_named) clauses.push_back(sentence(stall, each, seconds));
    else ++unnamed;
  }
  if (unnamed > 0) clauses.push_back(concat({"and ", text::count(unnamed, "more rank")}));
  for (const auto* const ranks : {&unknown, &of_group}) {
    if (ranks->empty()) continue;
    clauses.push_back(concat({ranks->size() == 1 ? "rank " : "ranks ", compress_ranks(*ranks),
                              ranks == &of_group ? " of the group" : "",
                              ranks->size() == 1 ? " has no recorder" : " have no recorder"}));
  }
  const std::vector<std::string_view> views(clauses.begin(), clauses.end());
  const bool is_cut =
      std::ranges::find(stall.missing, MissingRank::Why::cut_short, &MissingRank::why) != stall.missing.end();
  const std::string_view doubt =
      is_cut ? "; nothing recorded tells whose call is wrong" : "; nothing recorded tells which of them is wrong";
  const std::string waits = concat({"; ", text::count(waiting, "rank"), waiting == 1 ? " waits" : " wait"});
  return concat({call_of_group(stall), ": ", text::join(views), stall.is_tie ? doubt : "", waiting == 0 ? "" : waits});
}

}  // namespace amldist::trace
