// Reads a step's nodes, its task map and the job's numbers from Slurm's variables.
//
// Only the step's own variables are used (SLURM_STEP_*): SLURM_NTASKS, SLURM_NNODES and SLURM_JOB_NODELIST may belong
// to the job or to another step. Callers that know more pass it in: slurmctld's exact map as text, and what slurmstepd
// knows about its own node, which every derived map must match.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/text/environment.hpp"
#include "base/text/hostlist.hpp"
#include "base/text/result.hpp"
#include "launch/placement/task_map.hpp"

namespace amldist::launch {

/// How reliable a task map is.
enum class Provenance {
  exact,    ///< Slurm said where each task runs
  derived,  ///< computed from counts and the distribution
  given,    ///< typed by a person, for `aml-dist explain`
};

[[nodiscard]] std::string_view to_string(Provenance provenance) noexcept;

/// Numbers that identify one run of one job on one cluster.
struct JobName {
  std::string cluster;
  std::uint32_t job_id = 0;    ///< the whole job's id also for a component of a heterogeneous job
  std::uint32_t restarts = 0;  ///< how often the job was requeued
};

/// Which tasks of a step run where.
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

/// What slurmstepd knows for certain about its own node. Every map is checked against it.
struct SlurmNodeView {
  std::uint32_t node = 0;                ///< SLURM_NODEID
  std::uint32_t nodes = 0;               ///< nodes of the step
  std::uint32_t tasks = 0;               ///< tasks of the step
  std::span<const std::uint32_t> ranks;  ///< global ranks of this node, ascending
};

/// Reads cluster and restart count of the job `job_id`. A missing or malformed value leaves the default.
[[nodiscard]] JobName read_job_name(const EnvironmentReader& environment, std::uint32_t job_id);

/// The placement of a step, from SLURM_STEP_NODELIST and either `exact_map` (PMI's text) or SLURM_STEP_TASKS_PER_NODE
/// with the distribution. Errors: unavailable when a variable is missing or the layout needs more than these; mismatch
/// when the facts contradict `own_node`.
[[nodiscard]] Result<Placement> read_placement(const EnvironmentReader& environment,
                                               const std::optional<std::string>& exact_map,
                                               const SlurmNodeView& own_node);

}  // namespace amldist::launch
