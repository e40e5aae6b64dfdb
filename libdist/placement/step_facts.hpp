// What Slurm's variables say about a step: its nodes, its task map, and the numbers that name the job.
//
// Only the step's own variables are believed (SLURM_STEP_*): SLURM_NTASKS, SLURM_NNODES and SLURM_JOB_NODELIST may be
// the job's, or left over from another step. Whoever knows more passes it in: the exact map of slurmctld as text, and
// what slurmstepd knows of its own node, which every derived map must agree with.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/environment.hpp"
#include "core/hostlist.hpp"
#include "core/result.hpp"
#include "placement/task_map.hpp"

namespace amldist {

/// How far a task map can be trusted.
enum class Provenance {
  exact,    ///< Slurm said where every task is
  derived,  ///< computed from counts and the distribution
  given,    ///< typed by a person, offline
};

[[nodiscard]] std::string_view to_string(Provenance provenance) noexcept;

/// Numbers that name one run of one job on one cluster.
struct JobName {
  std::string cluster;
  std::uint32_t job_id = 0;    ///< the whole job's id also for a component of a heterogeneous job
  std::uint32_t restarts = 0;  ///< how often the job was requeued
};

/// Where the tasks of a step are.
struct Placement {
  Hostlist hosts;  ///< in node order (SLURM_NODEID)
  TaskMap map;
  Provenance provenance = Provenance::derived;
  std::string source;  ///< for people: "slurmctld's step layout", "SLURM_STEP_TASKS_PER_NODE, cyclic"
  /// Whether `hosts` is in the order of SLURM_STEP_NODELIST; that of joined components is not.
  bool in_node_order = true;

  [[nodiscard]] std::string host_of(std::uint32_t rank) const { return hosts.at(map.node_of(rank)); }
  [[nodiscard]] std::string master_host() const { return host_of(0); }
};

/// What slurmstepd knows for certain about its own node; the judge of every map.
struct NodeTruth {
  std::uint32_t node = 0;                ///< SLURM_NODEID
  std::uint32_t nodes = 0;               ///< nodes of the step
  std::uint32_t tasks = 0;               ///< tasks of the step
  std::span<const std::uint32_t> ranks;  ///< global ranks of this node, ascending
};

/// Reads cluster and restart count of the job `job_id`. Missing ones stay at their defaults; a malformed number counts
/// as missing.
[[nodiscard]] JobName read_job_name(const EnvironmentReader& environment, std::uint32_t job_id);

/// The placement of a step, from SLURM_STEP_NODELIST and either `exact_map` (PMI's text) or SLURM_STEP_TASKS_PER_NODE
/// with the distribution. Errors: unavailable when a variable is missing or the layout needs more than these; mismatch
/// when the facts contradict `truth`.
[[nodiscard]] Result<Placement> read_placement(const EnvironmentReader& environment,
                                               const std::optional<std::string>& exact_map, const NodeTruth& truth);

}  // namespace amldist
