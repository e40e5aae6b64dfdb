// How slurmstepd learns about its step: from SPANK's items, from srun's record, and from slurmctld for heterogeneous
// steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/text/port_ranges.hpp"
#include "base/text/result.hpp"
#include "launch/option/spec.hpp"
#include "launch/placement/step_facts.hpp"
#include "launch/rendezvous/node_hosts.hpp"
#include "launch/site/node_features.hpp"
#include "launch/site/site_policy.hpp"
#include "spank/slurm/handle.hpp"
#include "step/messages/srun_link.hpp"

namespace amldist::spank {

/// SPANK's items about this node's part of the step; in a heterogeneous step, of its component.
struct NodeItems {
  std::uint32_t job_id = 0;
  std::uint32_t step_id = 0;
  std::uint32_t node = 0;
  std::uint32_t nodes = 0;
  std::uint32_t tasks = 0;
  std::vector<std::uint32_t> ranks;
};

/// The whole step, as all of its nodes must agree on it.
struct StepReading {
  launch::Placement placement;
  std::string address;       ///< for MASTER_ADDR, before the user's requests; or "@IFACE"
  PortRanges ports;          ///< to hash into
  std::uint32_t job_id = 0;  ///< the whole job's: in a heterogeneous step the first component's
  std::vector<std::uint32_t>
      ranks;  ///< of this slurmstepd's tasks, over the whole step; empty if only the tasks will know
  launch::NodeFeatures features;  ///< of the nodes, as far as the site has rules for them
  launch::NodeHosts peers;        ///< the names of the nodes, for kinds that name all of them
};

/// The nodes' features for which the site has rules, from slurmctld. Without such rules slurmctld is not asked. Errors:
/// unavailable.
[[nodiscard]] Result<launch::NodeFeatures> read_features(const launch::SitePolicy& policy, const launch::Spec& spec,
                                                         const Hostlist& hosts);

/// Reads the items. Errors: unavailable, or mismatch when they contradict each other.
[[nodiscard]] Result<NodeItems> read_items(const Handle& handle);

/// Reads the step from srun's record, or from Slurm if no srun made one. When the step has more tasks than this
/// component, srun is asked for the record; without an answer within two seconds, slurmctld for the components.
[[nodiscard]] Result<StepReading> read_step(const launch::Spec& spec, const launch::SitePolicy& policy,
                                            const NodeItems& items, const EnvironmentReader& environment,
                                            const std::optional<step::SrunLink>& srun);

}  // namespace amldist::spank
