// How a step ended, as one line of JSON in the file that AMLDIST_END_RECORD names. srun appends it, or its stand-in.
//
//   {"schema":1,"step":"12.0","cause":"rank_exit","rank":2,"node":"node3","status":7,"signal":null,"time":1795747032,
//    "evidence":"rank 2 (local 0) on node3: exit status 7, 3.1 s after the start","nodes_blamed":[]}
//
// (in one line). `time` is in seconds since 1970, UTC. `status` is that of the rank, or without one that of srun. What
// the user reads on the terminal and in the job's comment is made from the same record; nothing is parsed back from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace amldist::step {

inline constexpr const char* end_record_variable = "AMLDIST_END_RECORD";

struct EndRecord {
  enum class Cause {
    done,
    rank_exit,       ///< a rank ended with a status other than 0
    rank_signal,     ///< or with a signal
    out_of_memory,   ///< of the step or the node
    hang,            ///< ended by hang=
    node_down,       ///< Slurm lost a node
    node_unhealthy,  ///< a check of the node failed
    link,            ///< between nodes
    plugin_missing,  ///< a node has no aml-dist
    launch_failed,   ///< Slurm did not start all tasks
    refused,         ///< aml-dist did not let the tasks start
    time_limit,      ///< of the job or the step
    preempted,
    cancelled,
    unknown,
  };
  std::string step = {};  ///< "12.0"
  Cause cause = Cause::unknown;
  std::optional<std::uint32_t> rank = {};
  std::string node = {};  ///< of the rank, or whose fault it is; empty: not known, or several
  std::optional<std::uint32_t> status = {};
  std::optional<std::uint32_t> signal = {};
  std::int64_t time = 0;
  std::string evidence = {};  ///< a sentence
  std::vector<std::string> nodes_blamed = {};

  /// The line with its newline: printable, at most longest_end_record bytes; a longer evidence is cut.
  [[nodiscard]] std::string to_line() const;
  /// nullopt for a line, with its newline or without, that to_line() cannot have written.
  [[nodiscard]] static std::optional<EndRecord> parse(std::string_view line);

  /// What the user reads, without "aml-dist: "; empty for a step that ended well.
  [[nodiscard]] std::string sentence() const;
  /// How a shell would say the end: the exit status, or 128 + signal.
  [[nodiscard]] int shell_status() const;

  friend bool operator==(const EndRecord&, const EndRecord&) = default;
};

inline constexpr std::size_t longest_end_record = 4096;

[[nodiscard]] std::string_view to_string(EndRecord::Cause cause);

}  // namespace amldist::step
