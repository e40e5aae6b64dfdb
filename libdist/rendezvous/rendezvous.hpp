// Where the processes of a step meet: one address, one port, the same in every task.
//
// The address is fixed where the step is launched (srun) and travels in the launch record. The port needs no
// travelling: it is a pure function of numbers that every node has. What the user set by hand beats both, and a key on
// the option beats that.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/environment.hpp"
#include "core/port_ranges.hpp"
#include "core/result.hpp"
#include "core/spec.hpp"
#include "placement/step_facts.hpp"
#include "rendezvous/node_hosts.hpp"

namespace amldist {

/// Who chose a value.
enum class Origin {
  option,       ///< a key on --aml-dist
  environment,  ///< the user, by hand, in the environment
  reserved,     ///< Slurm's reserved ports
  computed,     ///< aml-dist
};

[[nodiscard]] std::string_view to_string(Origin origin) noexcept;

/// The meeting point of a step.
struct Rendezvous {
  std::string address;  ///< IPv4 address or host name
  std::uint16_t port = 0;
  Origin address_origin = Origin::computed;
  Origin port_origin = Origin::computed;
  NodeHosts node_hosts = {};  ///< how the nodes other than rank 0's are named
};

/// What settle() weighs for a step.
struct RendezvousFacts {
  std::string address;  ///< computed by srun; taken as it is
  PortRanges ports;     ///< usable for hashing
  JobName job;
  std::uint32_t step_id = 0;
  NodeHosts node_hosts = {};  ///< by srun, as the address
};

/// Decides between option, the user's own MASTER_ADDR and MASTER_PORT, reserved ports and computed values. A value that
/// an outer step of aml-dist left behind (told by the stamp) does not count as the user's. `notes` gets one sentence
/// when a user's value was taken. Errors: invalid_argument for a MASTER_ADDR or MASTER_PORT that cannot be one.
[[nodiscard]] Result<Rendezvous> settle(const Spec& spec, const RendezvousFacts& facts,
                                        const EnvironmentReader& environment, std::vector<std::string>& notes);

}  // namespace amldist
