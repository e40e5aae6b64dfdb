// The calls that cannot end, and who has not come to them, from the recorders of a step. Pure; its work is linear in
// the number of calls and members (times a logarithm).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trace/diagnosis/call_words.hpp"
#include "trace/record/record_reader.hpp"

namespace amldist::trace {

/// A rank that the other ranks wait for. Valid as long as the recordings.
struct MissingRank {
  enum class Why : std::uint8_t {
    never_called,  ///< it has not made the call that the others are in
    stopped,       ///< stopped by a signal or a debugger
    gone,          ///< its process died before or during the call
    slow,          ///< it is still in the call that the other ranks have left
    differs,       ///< it made another call, or one of another size
    no_recorder,   ///< unknown here: it never started recording, or its file is elsewhere
    alone,         ///< it made a call that the others have ended without
    cut_short,     ///< MPI failed its call of a message that was too long: this call, or another's, is wrong
  };
  Why why = Why::never_called;
  std::uint32_t rank = 0;                ///< of the step
  const Recording* recording = nullptr;  ///< nullptr: without a recorder
  /// Its newest call on this communicator that is still in the file; of one that differs, that call, or nullptr if it
  /// is no longer there.
  const CallRecord* last = nullptr;
  /// What it waits in meanwhile, on a communicator without a slot: somebody else is to blame for that.
  const CallRecord* unjudged_wait = nullptr;
  bool is_in_group_only = false;  ///< no recorder, and its rank in the step is not known: `rank` is that in the group

  /// Whether it is in its last call of all.
  [[nodiscard]] bool is_finalizing() const {
    return last != nullptr && last->pending() && last->operation == calls::Operation::finalize;
  }
  [[nodiscard]] std::string_view host() const { return recording != nullptr ? recording->host : std::string_view(); }
};

/// One call that cannot end.
struct Stall {
  std::uint64_t communicator = 0;
  std::string communicator_name;  ///< empty for the first, which has all ranks
  std::uint32_t members = 0;
  CallRecord call;  ///< as the first waiting rank recorded it
  /// When the first rank began to wait, or the missing ranks made their last calls if that was later.
  std::int64_t since_ns = 0;
  std::vector<std::uint32_t> waiting = {};  ///< ranks of the step
  std::vector<MissingRank> missing = {};    ///< by rank; not empty
  bool is_only_posted = false;              ///< nobody waits: the program computes, or polls
  bool may_have_ended = false;              ///< all have made the call, and its end is not recorded
  bool is_tie = false;  ///< the calls differ, and no majority says which are wrong: `missing` has all

  [[nodiscard]] bool is_message() const { return !recorder_format::is_collective(call.operation); }
};

/// At most one stall per communicator: the first call on which its members differ, or else its oldest call that has not
/// ended. If all members are in the call, alive, and agree on it, it is in progress and no stall. If no collective call
/// is stalled, pending sends and receives are examined.
[[nodiscard]] std::vector<Stall> find_stalls(std::span<const Recording> recordings);

/// The calls that ranks wait in: of all, and every send or receive whose peer has not come to it. A receive from any
/// rank counts as one from those that wait for nobody. Not every one is the cause of a hang: see hang_diagnosis.hpp.
[[nodiscard]] std::vector<Stall> find_all_stalls(std::span<const Recording> recordings);

/// "allreduce #41 of group 'dp'": the call that the ranks wait in.
[[nodiscard]] std::string call_of_group(const Stall& stall);

/// "rank 2 (local 0) on node2 has not called it for 60 s". The duration is left out where it is 0.
[[nodiscard]] std::string sentence(const Stall& stall, const MissingRank& missing, std::uint64_t seconds = 0);

/// "allreduce #41 of group 'dp': rank 2 (local 0) on node2 has not called it for 60 s; 7 ranks wait". `waiting`: how
/// many wait, in this call or elsewhere.
[[nodiscard]] std::string sentence(const Stall& stall, std::uint64_t seconds, std::size_t waiting);
[[nodiscard]] inline std::string sentence(const Stall& stall) { return sentence(stall, 0, stall.waiting.size()); }

}  // namespace amldist::trace
