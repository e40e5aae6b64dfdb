// The ports of a step: one derivation for everybody in it who needs a port that others must guess.
//
//   index = hash(cluster, job, restart) + stride * step + offset(purpose), modulo the number of ports
//
// Who shares a set of ports shares no port: neighbouring steps lie at least 64 apart where the set has room, and each
// purpose has its own part of these 64. Array tasks are jobs with numbers of their own. MASTER_PORT has offset 0.
#pragma once

#include <cstdint>
#include <optional>

#include "core/environment.hpp"
#include "core/port_ranges.hpp"
#include "placement/step_facts.hpp"

namespace amldist {

/// What a port is for. Each has room for some more ports behind its first.
enum class PortPurpose : std::uint8_t {
  master,        ///< MASTER_PORT, and for TensorFlow one for each task of a node: 48
  bootstrap,     ///< libdist's ranks, where the step has no MASTER_PORT: 8
  fabric_check,  ///< the nodes of `aml-dist check`: 8
};

/// The port of a step. Steps of one job never have the same, up to ports.size() of them, nor have two purposes of one
/// step where there are at least 3 ports. `ports` must not be empty.
/// Source of the hash: FNV-1a, 64 bit, http://www.isthe.com/chongo/tech/comp/fnv.
[[nodiscard]] std::uint16_t step_port(const PortRanges& ports, const JobName& job, std::uint32_t step_id,
                                      PortPurpose purpose = PortPurpose::master) noexcept;

/// From SLURM_STEP_RESV_PORTS ("12001-12003", "12001,12005"): the first is the master's, the last the fabric check's if
/// there are two. nullopt: none for this purpose, or a malformed text.
[[nodiscard]] std::optional<std::uint16_t> reserved_port(const EnvironmentReader& environment, PortPurpose purpose);

/// The port of the calling process's step, from Slurm's variables: the reserved one, else step_port() of the default
/// range. All nodes come to the same. Not for PortPurpose::master, which goes by the site's range.
[[nodiscard]] std::uint16_t own_step_port(const EnvironmentReader& environment, std::uint32_t job_id,
                                          std::uint32_t step_id, PortPurpose purpose);

}  // namespace amldist
