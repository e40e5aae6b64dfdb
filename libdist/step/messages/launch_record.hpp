// The launch record: what srun knows and every slurmstepd must agree on, in one variable.
//
//   SLURM_AMLDIST_LAUNCH=1;step=12.0;addr=10.0.0.1;ports=20000-29999;map=(vector,(0,4,2))
//
// For a heterogeneous step it also has job, tasks and nodes of each component:
//
//   1;step=12.0;addr=10.0.0.1;ports=20000-29999;map=(vector,(0,1,2),(1,1,1));components=12:1:n1+13:2:n[1,3]
//
// If the site's rules mention node features, it ends with the nodes that have them (site/node_features.hpp):
//
//   1;step=12.0;addr=10.0.0.1;ports=20000-29999;map=(vector,(0,4,2));features=ib:0-3
//
// A tensorflow step also has the nodes' addresses, or the suffix of their names (rendezvous/node_hosts.hpp):
//
//   1;step=12.0;addr=10.0.0.1;ports=20000-29999;map=(vector,(0,4,2));peers=10.0.0.1-10.0.0.4
//
// The name begins with SLURM because only such variables pass --export=NONE. The record travels through the user's
// environment, so slurmstepd does not trust it: it limits its size, checks it against the step, and checks its map
// against what the node itself knows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/port_ranges.hpp"
#include "base/text/result.hpp"
#include "launch/placement/components.hpp"
#include "launch/rendezvous/node_hosts.hpp"
#include "launch/site/node_features.hpp"

namespace amldist::step {

inline constexpr const char* launch_record_variable = "SLURM_AMLDIST_LAUNCH";
/// The record's value if srun refused the step and told the user why.
inline constexpr const char* refused_record = "refused";
/// The record's value until srun has made one. It stays if srun never reaches its local_user_init, as under --async:
/// then the nodes ask Slurm for the step's layout, and no srun listens.
inline constexpr const char* no_srun_record = "none";

/// The content of the record.
struct LaunchRecord {
  std::uint32_t job_id = 0;
  std::uint32_t step_id = 0;
  std::string address;  ///< MASTER_ADDR as srun chose it, or "@IFACE" if only rank 0's node knows it
  PortRanges ports;     ///< candidate ports: the site's, without those of the kernel on srun's host
  std::string map;      ///< PMI's process mapping
  /// Only for a heterogeneous step; distinct_hosts() of them are the nodes of the map.
  std::vector<launch::Component> components = {};
  launch::NodeFeatures features = {};  ///< features that the site's rules mention
  launch::NodeHosts peers = {};        ///< how to name the nodes, for kinds that name all of them

  [[nodiscard]] bool is_heterogeneous() const noexcept { return !components.empty(); }

  [[nodiscard]] std::string to_string() const;

  /// Errors: invalid_argument for a text that to_string() cannot have written, limit for one over 128 KiB.
  [[nodiscard]] static Result<LaunchRecord> parse(std::string_view text);

  friend bool operator==(const LaunchRecord&, const LaunchRecord&) = default;
};

}  // namespace amldist::step
