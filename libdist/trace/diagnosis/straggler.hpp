// Finds the straggler of a running step: the rank that waits least, while all others wait for it, directly or through
// ranks that wait for it. It uses the time that each rank spent in calls in the last minute, which each node knows
// without the records of other nodes. Pure.
//
// In a pipeline only the neighbours wait for a slow stage, and the stages behind them wait for the neighbours. So a
// rank that waits for a waiting rank counts as waiting for the rank at the end of that chain.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trace/diagnosis/waits.hpp"
#include "trace/record/record_reader.hpp"

namespace amldist::trace {

/// Whom a rank waited for: another rank, by a message, or whoever came last of a group.
struct WaitedFor {
  bool is_group = false;
  std::uint64_t id = 0;  ///< a rank of the step, or the id of a communicator
  double part = 0;       ///< of its time; a wait for several ranks at once counts for each of them

  bool operator==(const WaitedFor&) const = default;
};

/// What one rank spent in calls of all members and in messages.
struct OwnWaits {
  static constexpr std::size_t most_awaited = 16;

  std::uint32_t rank = 0;
  std::uint32_t local_rank = 0;
  std::string host = {};
  std::uint64_t calls = 0;  ///< ended ones in a minute
  double part = 0;          ///< of its time, from 0 to 1; without the two longest, which may have been for a checkpoint
  double at_most = 0;  ///< the same, if it did nothing else while calls were open that it did not wait for but test
  std::vector<WaitedFor> awaited = {};  ///< the longest first, most_awaited of them; nobody for a message of any rank
};
/// In the last minute before `now_ns`, or as far back as its file reaches; nullopt: that is less than 10 seconds, or it
/// has hardly ended any such call.
[[nodiscard]] std::optional<OwnWaits> own_waits(const Recording& recording, std::int64_t now_ns);

/// The straggler, by what all ranks of a step spent in calls: each of the others waits for a tenth of its time or more
/// beyond what this one waits, and that is two thirds of what they wait or more. Each of them spends most of its waits
/// on this one, or on others of whom that is true.
struct Straggler {
  OwnWaits rank;
  double others = 0;  ///< the part of their time that all others wait beyond what it waits
  double share = 0;   ///< of what they wait
};
[[nodiscard]] std::optional<Straggler> straggler_of(std::span<const OwnWaits> ranks);

/// The same by the recorders of all ranks of a step; nullopt also where some are missing.
[[nodiscard]] std::optional<Straggler> find_straggler(std::span<const Recording> recordings);

/// "rank 2 (local 0) on node2: the others wait for it 61 % of their time, which is 97 % of their waits".
[[nodiscard]] std::string sentence(const Straggler& straggler);

/// The straggler by the calls that have ended (waits.hpp), or else by what all ranks spent in calls.
struct NamedStraggler {
  std::uint32_t rank = 0;
  std::string host;
  std::string sentence;
};
[[nodiscard]] std::optional<NamedStraggler> name_straggler(std::span<const Recording> recordings,
                                                           const StepWaits& waits);

}  // namespace amldist::trace
