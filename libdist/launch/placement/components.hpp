// Joins the components of a heterogeneous step (srun A : B) to one step, numbered as Slurm numbers its tasks.
//
//   node[1-2], 2 tasks each : node3, 1 task     ranks 0..3 on node1 and node2, rank 4 on node3
//   node1, 2 tasks : node[1-2], 1 task each     ranks 0, 1 and 2 on node1, rank 3 on node2
//
// The ranks of a component follow those of the one before. A host that several components use is one node, and all its
// tasks are local to each other.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/text/hostlist.hpp"
#include "base/text/result.hpp"
#include "launch/placement/step_facts.hpp"
#include "launch/placement/task_map.hpp"

namespace amldist::launch {

/// A component as slurmctld describes it. Its ranks follow those of the component before it.
struct Component {
  std::uint32_t job_id = 0;  ///< each component of a heterogeneous job has its own id; inside one job all share its id
  std::uint32_t tasks = 0;
  std::string hosts;  ///< its node list, in the order of the component's node numbers

  friend bool operator==(const Component&, const Component&) = default;
};

/// Most hosts that all components may mention together: Slurm's own limit. Root expands their names from text that the
/// user controls.
inline constexpr std::size_t most_component_hosts = 65536;

/// The hosts of all components, each once, in order of first mention, as Components numbers them. Errors: as
/// Hostlist::parse(); limit above most_component_hosts mentions.
[[nodiscard]] Result<Hostlist> distinct_hosts(std::span<const Component> components);

/// Joins components in rank order.
class Components {
 public:
  /// Adds a component: its hosts, and for each of its ranks the index of a host. Errors: mismatch for an index out of
  /// range, limit for too many tasks or hosts. After an error the object must not be used.
  [[nodiscard]] Result<void> join(const Hostlist& hosts, std::span<const std::uint32_t> node_of_rank);
  /// The same, for a component with a task map.
  [[nodiscard]] Result<void> join(const Hostlist& hosts, const TaskMap& map);

  /// Tasks of all components so far.
  [[nodiscard]] std::size_t tasks() const noexcept { return node_of_rank_.size(); }

  /// The whole step: nodes in order of first mention. Errors: mismatch if a host has no task or nothing was joined.
  [[nodiscard]] Result<Placement> placement(Provenance provenance, std::string source) &&;

 private:
  std::unordered_map<std::string, std::uint32_t> index_;  // of a name in names_
  std::vector<std::string> names_;
  std::vector<std::uint32_t> node_of_rank_;
};

}  // namespace amldist::launch
