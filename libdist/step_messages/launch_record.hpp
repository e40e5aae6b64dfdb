// What srun knows and every slurmstepd must agree on, in one variable from srun to the nodes.
//
//   SLURM_AMLDIST_LAUNCH=1;step=12.0;addr=10.0.0.1;ports=20000-29999;map=(vector,(0,4,2))
//
// That of a heterogeneous step also has job, tasks and nodes of each component:
//
//   1;step=12.0;addr=10.0.0.1;ports=20000-29999;map=(vector,(0,1,2),(1,1,1));components=12:1:n1+13:2:n[1,3]
//
// and where the site's rules are about features of nodes, it ends with the nodes that have them
// (core/node_features.hpp):
//
//   1;step=12.0;addr=10.0.0.1;ports=20000-29999;map=(vector,(0,4,2));features=ib:0-3
//
// and that of a tensorflow step with the nodes' addresses, or the suffix of their names (rendezvous/node_hosts.hpp):
//
//   1;step=12.0;addr=10.0.0.1;ports=20000-29999;map=(vector,(0,4,2));peers=10.0.0.1-10.0.0.4
//
// The name begins with SLURM because only such variables pass --export=NONE. It travels through the user's environment,
// so slurmstepd takes it for hostile: bounded, checked against the step, and its map against what the node knows
// itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/node_features.hpp"
#include "core/port_ranges.hpp"
#include "core/result.hpp"
#include "placement/components.hpp"
#include "rendezvous/node_hosts.hpp"

namespace amldist {

inline constexpr const char* launch_record_variable = "SLURM_AMLDIST_LAUNCH";
/// In its place: srun has refused the step and told the user why.
inline constexpr const char* refused_record = "refused";

/// The content of the record.
struct LaunchRecord {
  std::uint32_t job_id = 0;
  std::uint32_t step_id = 0;
  std::string address;  ///< MASTER_ADDR as srun chose it, or "@IFACE" where rank 0's node is to say it
  PortRanges ports;     ///< ports to hash into: the site's, less the kernel's where srun runs
  std::string map;      ///< PMI's process mapping
  /// Of a heterogeneous step, else empty; distinct_hosts() of them are the nodes of the map.
  std::vector<Component> components = {};
  NodeFeatures features = {};  ///< those that the site's rules are about
  NodeHosts peers = {};        ///< how the nodes are named where all of them are

  [[nodiscard]] bool is_heterogeneous() const noexcept { return !components.empty(); }

  [[nodiscard]] std::string to_string() const;

  /// Errors: invalid_argument for a text that to_string() cannot have written, limit for one over 128 KiB.
  [[nodiscard]] static Result<LaunchRecord> parse(std::string_view text);

  friend bool operator==(const LaunchRecord&, const LaunchRecord&) = default;
};

}  // namespace amldist
