// What srun knows and every slurmstepd must agree on, in one variable from srun to the nodes.
//
//   SLURM_AMLDIST_LAUNCH=1;step=12.0;addr=10.0.0.1;ports=20000-29999;map=(vector,(0,4,2))
//
// The name begins with SLURM because only such variables pass --export=NONE. It travels through the user's environment,
// so slurmstepd takes it for hostile: bounded, checked against the step, and its map against what the node knows
// itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/port_ranges.hpp"
#include "core/result.hpp"

namespace amldist {

inline constexpr const char* launch_record_variable = "SLURM_AMLDIST_LAUNCH";

/// The content of the record.
struct LaunchRecord {
  std::uint32_t job_id = 0;
  std::uint32_t step_id = 0;
  std::string address;  ///< MASTER_ADDR as srun chose it
  PortRanges ports;     ///< ports to hash into: the site's, less the kernel's where srun runs
  std::string map;      ///< PMI's process mapping

  [[nodiscard]] std::string to_string() const;

  /// Errors: invalid_argument for a text that to_string() cannot have written, limit for one over 128 KiB.
  [[nodiscard]] static Result<LaunchRecord> parse(std::string_view text);

  friend bool operator==(const LaunchRecord&, const LaunchRecord&) = default;
};

}  // namespace amldist
