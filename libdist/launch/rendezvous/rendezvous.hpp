// Where the processes of a step meet: one address and one port, the same in every task.
//
// srun fixes the address when it launches the step, and the launch record carries it. The port is a pure function of
// numbers that every node has. A value that the user set by hand overrides both, and a key of the option overrides
// that.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/text/environment.hpp"
#include "base/text/port_ranges.hpp"
#include "base/text/result.hpp"
#include "launch/option/spec.hpp"
#include "launch/placement/step_facts.hpp"
#include "launch/rendezvous/node_hosts.hpp"

namespace amldist::launch {

/// Who chose a value.
enum class Origin {
  option,       ///< a key on --aml-dist
  environment,  ///< the user's environment
  reserved,     ///< Slurm's reserved ports
  computed,     ///< aml-dist
};

[[nodiscard]] std::string_view to_string(Origin origin) noexcept;

/// The rendezvous of a step.
struct Rendezvous {
  std::string address;  ///< IPv4 address or host name
  std::uint16_t port = 0;
  Origin address_origin = Origin::computed;
  Origin port_origin = Origin::computed;
  NodeHosts node_hosts = {};  ///< how the nodes other than rank 0's are named
};

/// The facts from which settle() decides.
struct RendezvousFacts {
  std::string address;  ///< chosen by srun; not checked again
  PortRanges ports;     ///< ports that the hash may choose
  JobName job;
  std::uint32_t step_id = 0;
  NodeHosts node_hosts = {};  ///< chosen by srun, like the address
  /// What is wrong with a host that the user set as the master ("it leads to node2, but rank 0 is on node1"); empty:
  /// nothing. Absent: not known here.
  std::function<std::string(const std::string& host)> doubt = {};
};

/// Chooses between the option, the user's own MASTER_ADDR and MASTER_PORT, Slurm's reserved ports and computed values.
/// A value that an outer aml-dist step left behind (its stamp shows it) does not count as the user's. `notes` gets one
/// sentence if a user's value was used, or if his host is in doubt. Errors: invalid_argument for an invalid MASTER_ADDR
/// or MASTER_PORT.
[[nodiscard]] Result<Rendezvous> settle(const Spec& spec, const RendezvousFacts& facts,
                                        const EnvironmentReader& environment, std::vector<std::string>& notes);

}  // namespace amldist::launch
