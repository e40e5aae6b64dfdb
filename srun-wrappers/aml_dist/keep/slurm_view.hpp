// What `aml-dist keep` asks Slurm and tells it, by its commands. Each answer has a time limit.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/environment.hpp"
#include "base/text/result.hpp"

namespace amldist::keep {

struct NodeState {
  std::string address;     ///< NodeAddr
  std::string word;        ///< "DOWN+NOT_RESPONDING"
  std::uint16_t port = 0;  ///< of its slurmd, where it is not the site's
  /// Or does not answer slurmctld. Not UNKNOWN, as all nodes are to a slurmctld that has just started.
  [[nodiscard]] bool is_down() const;
  [[nodiscard]] bool is_usable() const;  ///< neither down nor drained
};

/// By their names; empty: no answer.
[[nodiscard]] std::map<std::string, NodeState> node_states(std::span<const std::string> nodes);
/// Reads `scontrol -o show node`.
[[nodiscard]] std::map<std::string, NodeState> parse_nodes(std::string_view text);

/// Numbers of slurm.conf.
struct SlurmNumbers {
  std::uint16_t slurmd_port = 6818;
  std::uint32_t slurmd_timeout = 300;  ///< seconds
};
[[nodiscard]] SlurmNumbers slurm_numbers();

/// The name by which Slurm's commands mean this job alone: "12", or "12_3" of a task of an array. The number of an
/// array's last task is that of the whole array: `scontrol requeue 12` would end all its tasks. The functions below
/// take this name.
[[nodiscard]] std::string name_of_job(std::uint32_t job, const EnvironmentReader& environment);

/// The step that the srun with this number has started on this machine; "12.0".
[[nodiscard]] std::optional<std::string> step_of(const std::string& job, pid_t srun);
/// Reads `scontrol -o show step`.
[[nodiscard]] std::optional<std::string> parse_step(std::string_view text, std::string_view host, pid_t srun);

/// Whether slurmctld still has this step; false without an answer.
[[nodiscard]] bool is_known_step(const std::string& job, const std::string& step);

/// Takes all other nodes out of the job. slurmctld ends steps on them at once, and does not wait for nodes that are
/// gone. Errors: unavailable, with slurmctld's sentence.
[[nodiscard]] Result<void> shrink_job(const std::string& job, std::span<const std::string> nodes,
                                      const std::string& folder);
void cancel_step(const std::string& step);
/// Slurm may end scontrol with the job's other processes: that is no error. Errors: unavailable.
[[nodiscard]] Result<void> requeue_job(const std::string& job);
/// Adds nodes to those that a pending job excludes. Errors: unavailable.
[[nodiscard]] Result<void> exclude_nodes(const std::string& job, std::span<const std::string> nodes);
inline constexpr std::int64_t no_time_limit = INT64_MAX;
/// Seconds since 1970 at which the job's time limit is, or no_time_limit; nullopt: no answer.
[[nodiscard]] std::optional<std::int64_t> end_of_job(const std::string& job);
/// Reads "2026-11-27T08:20:00", in this machine's zone.
[[nodiscard]] std::optional<std::int64_t> parse_time(const std::string& text);
/// A field of `scontrol show job`, such as "JobState"; empty: no answer.
[[nodiscard]] std::string job_field(const std::string& job, std::string_view name);

}  // namespace amldist::keep
