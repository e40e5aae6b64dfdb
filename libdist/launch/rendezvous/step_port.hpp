// The ports of a step: one rule for every port that several processes must compute alike.
//
//   index = hash(cluster, job, restart) + stride * step + offset(purpose), modulo the number of ports
//
// Users of one set of ports do not collide: consecutive steps are at least 64 apart if the set is large enough, and
// each purpose has its own part of these 64. Array tasks are jobs with their own ids. MASTER_PORT has offset 0.
#pragma once

#include <cstdint>
#include <optional>

#include "base/text/environment.hpp"
#include "base/text/port_ranges.hpp"
#include "launch/placement/step_facts.hpp"

namespace amldist::launch {

/// What a port is for. Each purpose has a few ports, from its first one on.
enum class PortPurpose : std::uint8_t {
  master,        ///< MASTER_PORT, and with TensorFlow one per task of a node: 48 ports
  bootstrap,     ///< libdist's ranks, if the step has no MASTER_PORT: 8 ports
  fabric_check,  ///< the nodes of `aml-dist check`: 8 ports
};

/// The port of a step. Steps of one job get different ports, up to ports.size() of them, and so do the purposes of one
/// step if there are at least 3 ports. `ports` must not be empty.
/// Source of the hash: FNV-1a, 64 bit, http://www.isthe.com/chongo/tech/comp/fnv.
[[nodiscard]] std::uint16_t step_port(const PortRanges& ports, const JobName& job, std::uint32_t step_id,
                                      PortPurpose purpose = PortPurpose::master) noexcept;

/// The first of `length` successive ports, for a step that needs that many on each node. Blocks of one length coincide
/// or are disjoint, and those of successive steps of a job are disjoint while there are enough. 0: `ports` has no such
/// block.
[[nodiscard]] std::uint16_t step_port_block(const PortRanges& ports, const JobName& job, std::uint32_t step_id,
                                            std::uint32_t length) noexcept;

/// The port at which libdist's ranks meet if all that they share is MASTER_PORT: 48 above it, the same offset as
/// PortPurpose::bootstrap, or 48 below if that exceeds the largest port. MASTER_PORT itself belongs to the program's
/// framework. With `ports`, which a site gives, one of these.
[[nodiscard]] std::uint16_t port_beside(std::uint16_t master_port, const PortRanges& ports = {}) noexcept;

/// From SLURM_STEP_RESV_PORTS ("12001-12003", "12001,12005"): the first port is the master's; the last is the fabric
/// check's if there are two. nullopt: no port for this purpose, or a malformed text.
[[nodiscard]] std::optional<std::uint16_t> reserved_port(const EnvironmentReader& environment, PortPurpose purpose);

/// The port of the calling process's step, from Slurm's variables: the reserved one, else step_port() in the default
/// range. All nodes compute the same port. Not for PortPurpose::master, which follows the site's range.
[[nodiscard]] std::uint16_t own_step_port(const EnvironmentReader& environment, std::uint32_t job_id,
                                          std::uint32_t step_id, PortPurpose purpose);

}  // namespace amldist::launch
