// What follows from the end of a start: one pure table, without a clock, a process or Slurm.
//
//   end of the start                                              decision
//   done                                                          end
//   done, asked to by stop= before the time limit                 requeue (--requeue-at-limit); costs nothing
//   refused, cancelled, time_limit, preempted, --no-restart-on    end at once; a preemption costs nothing; a status that
//                                                                 follows from another node's fault does not count
//   node_down, node_unhealthy, link, plugin_missing, a launch     that node is never used again in this job:
//     that Slurm could not do on a node                             replace
//   a rank failed or hung: the first time                         restart on the same nodes
//     on the same node again                                      the node is suspected: replace
//     with the same status and text on another node               end: the program's own fault
//     --progress did not advance in two starts                    end: no progress
//   replace: with a spare; else fewer nodes (--min-nodes); else back to the queue (--requeue); else end
//   whatever starts again costs one of --retries and of --per-hour, and waits 1, 2, 4, ... 60 s after short starts
//
// Failures are counted together while no start between them was of use: it advanced, or, where nobody watches progress,
// it ran for an hour.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "step/messages/end_record.hpp"

namespace amldist::keep {

using Cause = step::EndRecord::Cause;

/// A start that has ended.
struct Start {
  Cause cause = Cause::unknown;
  std::string node = {};                 ///< of the rank that failed; empty: not known
  std::vector<std::string> blamed = {};  ///< nodes whose fault it is
  std::string failure = {};              ///< what is the same when the same thing happens again (failure_of)
  std::string evidence = {};             ///< a sentence
  int status = 0;                        ///< of srun
  int rank_status = 0;                   ///< of the rank that failed, as a shell says it; 0: not known
  std::int64_t ended = 0;                ///< seconds since 1970
  std::int64_t ran = 0;                  ///< seconds
  std::optional<bool> advanced = {};     ///< nullopt: nobody watches progress
  bool at_limit = false;                 ///< it ended after stop= asked it to, before the job's time limit

  friend bool operator==(const Start&, const Start&) = default;
};

/// What the user allows.
struct Limits {
  std::uint32_t retries = 3;
  std::uint32_t per_hour = 0;   ///< 0: any number
  std::uint32_t min_nodes = 0;  ///< 0: as many as asked for
  bool requeue = false;
  bool requeue_at_limit = false;
  std::vector<int> no_restart_on = {};
};

/// The nodes of the start that has ended.
struct Nodes {
  std::vector<std::string> step = {};    ///< in the order of their ranks
  std::vector<std::string> spares = {};  ///< usable ones
};

enum class Action { restart, swap, fewer, requeue, end };

struct Decision {
  Action action = Action::end;
  std::vector<std::string> excluded = {};  ///< never used again in this job
  std::chrono::seconds wait{0};            ///< before the next start
  std::string sentence = {};               ///< for the user; empty: the step ended well
};

/// `history`: all starts of this job, the one that has ended last. At least one.
[[nodiscard]] Decision decide(const Limits& limits, std::span<const Start> history, const Nodes& nodes);

/// Starts that count for --retries.
[[nodiscard]] std::size_t costly(std::span<const Start> history);

/// The part of a failure that does not change from node to node and from start to start: cause, status or signal, and
/// the text after it, without ranks, hosts, times and numbers.
[[nodiscard]] std::string failure_of(const step::EndRecord& record);

/// The step's nodes after `excluded` have gone: spares take their places, and where there are none the list is shorter.
[[nodiscard]] std::vector<std::string> without(const Nodes& nodes, std::span<const std::string> excluded);

[[nodiscard]] std::string_view to_string(Action action);

/// "node1, node2".
[[nodiscard]] std::string names_of(std::span<const std::string> nodes);
[[nodiscard]] bool contains(std::span<const std::string> names, const std::string& name);

}  // namespace amldist::keep
