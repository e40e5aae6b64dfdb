#include "aml_dist/trace/agreement.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "aml_dist/trace/torch_dump.hpp"
#include "base/text/text.hpp"
#include "trace/diagnosis/call_words.hpp"

namespace amldist::tools {
namespace {

using text::concat;
using trace::CallRecord;
using trace::CommunicatorRecord;
using trace::HangDiagnosis;
using trace::Recording;
using Ranks = std::set<std::uint32_t>;

constexpr std::string_view torch = "PyTorch's flight recorder";
constexpr std::string_view ras = "NCCL RAS";

Ranks accused_of(const std::optional<HangDiagnosis>& hang) {
  Ranks ranks;
  if (hang)
    for (const auto& each : hang->stall.missing) ranks.insert(each.rank);
  return ranks;
}

bool is_decided(const std::optional<HangDiagnosis>& hang) { return !hang || hang->is_decided(); }

std::string sentence_of(const std::optional<HangDiagnosis>& hang) {
  return hang ? trace::sentence(*hang, 0) : std::string("nobody is waited for");
}

Agreement verdict(std::string_view witness, std::optional<bool> agrees, std::string_view what) {
  const std::string_view verb = !agrees ? " leaves it open: " : *agrees ? " agrees: " : " says otherwise: ";
  return {std::string(witness), agrees, concat({witness, verb, what})};
}

// ---- PyTorch's flight recorder ----

const CallRecord* last_of_all(const Recording& recording, std::uint32_t slot) {
  const CallRecord* last = nullptr;
  for (const CallRecord& call : recording.calls)
    if (call.communicator == slot && trace::recorder_format::is_collective(call.operation)) last = &call;
  return last;
}

/// Our recorder of this rank and group; PyTorch's where there are several, which has the same calls.
const CallRecord* our_last(const TracedStep& ours, std::uint32_t rank, const std::vector<std::uint32_t>& members) {
  const CallRecord* found = nullptr;
  for (const Recording& recording : ours.recordings) {
    if (recording.rank != rank) continue;
    for (const CommunicatorRecord& each : recording.communicators) {
      const bool is_it = each.world_ranks.to_list() == members && !each.closed;
      if (const CallRecord* const last = is_it ? last_of_all(recording, each.slot) : nullptr; last != nullptr)
        found = last;
    }
    if (found != nullptr && recording.source == "torch") break;
  }
  return found;
}

/// Describes the first rank whose last call in a group differs between PyTorch's dumps and our recorders; "" if they
/// agree.
std::string differing_call(const TracedStep& ours, const TracedStep& dumps) {
  for (const Recording& recording : dumps.recordings) {
    for (const CommunicatorRecord& each : recording.communicators) {
      const CallRecord* const theirs = last_of_all(recording, each.slot);
      const auto members = each.world_ranks.to_list();
      const CallRecord* const here = theirs != nullptr ? our_last(ours, recording.rank, members) : nullptr;
      if (here == nullptr || torch_name(here->operation) == torch_name(theirs->operation)) continue;
      return concat({"; the last call of rank ", std::to_string(recording.rank), " in group ", text::quote(each.name),
                     " is ", trace::describe_call(*theirs), " there and ", trace::describe_call(*here), " here"});
    }
  }
  return {};
}

// ---- NCCL RAS ----

/// Ranks of the step by their rank in one of NCCL's communicators, of those that record.
std::map<std::uint32_t, std::uint32_t> members_of(const TracedStep& ours, const RasGroup& group) {
  std::map<std::uint32_t, std::uint32_t> members;
  for (const Recording& recording : ours.recordings) {
    if (recording.source != "nccl") continue;
    for (const CommunicatorRecord& each : recording.communicators)
      if (each.id == group.id && each.size == group.size) members.emplace(each.rank, recording.rank);
  }
  return members;
}

/// The communicator that a stall is about, or the one with the same members where PyTorch's recorder tells of it.
const RasGroup* group_of(const TracedStep& ours, const RasAnswer& answer) {
  const auto& stall = ours.hang->stall;
  const auto same = std::ranges::find(answer.groups, stall.communicator, &RasGroup::id);
  if (same != answer.groups.end() && !members_of(ours, *same).empty()) return &*same;
  Ranks wanted(stall.waiting.begin(), stall.waiting.end());
  wanted.merge(accused_of(ours.hang));
  for (const RasGroup& group : answer.groups) {
    Ranks members;
    for (const auto& [rank, world_rank] : members_of(ours, group)) members.insert(world_rank);
    if (members == wanted) return &group;
  }
  return nullptr;
}

void add(const std::map<std::uint32_t, std::uint32_t>& members, const std::vector<std::uint32_t>& ranks,
         std::string_view what, Ranks& all, std::string& words) {
  std::vector<std::uint32_t> world_ranks;
  for (const std::uint32_t rank : ranks)
    if (const auto found = members.find(rank); found != members.end()) world_ranks.push_back(found->second);
  if (world_ranks.empty()) return;
  std::ranges::sort(world_ranks);
  all.insert(world_ranks.begin(), world_ranks.end());
  const bool is_one = world_ranks.size() == 1;
  words += concat({words.empty() ? "" : ", ", is_one ? "rank " : "ranks ", trace::compress_ranks(world_ranks),
                   is_one ? "" : " each", " ", what});
}

}  // namespace

Agreement compare_dumps(const TracedStep& ours, const TracedStep& dumps) {
  const Ranks here = accused_of(ours.hang);
  const Ranks there = accused_of(dumps.hang);
  const std::string what = concat({sentence_of(dumps.hang), differing_call(ours, dumps)});
  if (!is_decided(dumps.hang) || !is_decided(ours.hang)) {
    const bool is_same = here == there && is_decided(dumps.hang) == is_decided(ours.hang);
    return verdict(torch, is_same ? std::optional(true) : std::nullopt, what);
  }
  return verdict(torch, here == there, what);
}

Agreement compare_ras(const TracedStep& ours, const RasAnswer& answer) {
  if (!answer.problem.empty())
    return {std::string(ras), std::nullopt, concat({ras, " is not heard: ", answer.problem})};
  const RasGroup* const group = ours.hang ? group_of(ours, answer) : nullptr;
  if (group == nullptr) return {std::string(ras), std::nullopt, concat({ras, " does not know the group of this call"})};
  const auto members = members_of(ours, *group);
  Ranks there;
  std::string words;
  add(members, group->silent, "does not answer", there, words);
  add(members, group->behind, "has made fewer calls than others", there, words);
  add(members, group->differs, "has made other calls than most", there, words);
  if (words.empty()) return verdict(ras, std::nullopt, "all ranks of the group answer, and have made the same calls");
  if (!ours.hang->is_decided()) return verdict(ras, std::nullopt, words);
  return verdict(ras, there == accused_of(ours.hang), words);
}

}  // namespace amldist::tools
