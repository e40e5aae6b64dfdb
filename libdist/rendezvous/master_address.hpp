// The choice of the master's address, made once per step, where it is launched.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/ipv4.hpp"
#include "core/result.hpp"
#include "core/spec.hpp"
#include "placement/step_facts.hpp"
#include "rendezvous/rendezvous.hpp"
#include "site/site_policy.hpp"

namespace amldist {

/// What the choice needs to ask of the machine it is made on. Each function may block on a name service. MASTER_ADDR
/// takes a bounded number of calls, the addresses of all nodes one or two for each node.
struct NetworkView {
  /// Address by which Slurm reaches a node (NodeAddr), else what the name resolves to.
  std::function<Result<Ipv4>(const std::string& node)> address_of_node;
  /// Address of any name.
  std::function<Result<Ipv4>(const std::string& name)> resolve;
  /// Source address that this machine would use towards `peer`.
  std::function<Result<Ipv4>(Ipv4 peer)> source_towards;
  /// Whether this machine is that node.
  std::function<bool(const std::string& node)> is_here;
  /// Address of an interface of this machine.
  std::function<Result<Ipv4>(std::string_view interface, const std::optional<Ipv4Network>& network)> interface_address;
};

/// "@ib0" in place of an address: the interface, of which only rank 0's node knows the address; nullopt for an address.
[[nodiscard]] std::optional<std::string_view> interface_to_ask(std::string_view address) noexcept;

/// The address for MASTER_ADDR: the host of rank 0, as name or IPv4 as `spec` and `policy` want it. Never loopback when
/// the step has nodes with other addresses. Where the site names an interface and rank 0's host is another machine: "@"
/// and that name. Errors: unavailable when the name does not resolve, or only to loopback.
[[nodiscard]] Result<std::string> choose_master_address(const Spec& spec, const SitePolicy& policy,
                                                        const Placement& placement, const NetworkView& network);

/// How the step's other nodes are named in TF_CONFIG, for kind tensorflow (else, and on one node: empty): by name with
/// the site's suffix, or by address, as `spec` and `policy` want MASTER_ADDR. A host that the user names stands for
/// rank 0's node alone; the others then go by the site's rule. Where the site names an interface, only each node knows
/// its own address there: the others are then found by the site's suffix, or by NodeAddr within the site's network.
/// `master` is the address chosen for rank 0's node, which is not asked for again. Errors: as of
/// choose_master_address(), and unavailable for an interface without suffix and network.
[[nodiscard]] Result<NodeHosts> choose_node_hosts(const Spec& spec, const SitePolicy& policy,
                                                  const Placement& placement, std::string_view master,
                                                  const NetworkView& network);

/// Refuses a master of the user's own (key or variable) in which every node would see itself, such as localhost, where
/// the step has nodes with other addresses. Of `network` only address_of_node is asked. Errors: mismatch.
[[nodiscard]] Result<void> refuse_loopback(const Rendezvous& rendezvous, const Placement& placement,
                                           const NetworkView& network);

/// The view of this machine: the resolver, the routing table and the host name. `slurm_address` answers for NodeAddr
/// and may be empty.
[[nodiscard]] NetworkView this_machine(std::function<Result<Ipv4>(const std::string& node)> slurm_address);

/// Ports that the kernel of this machine hands out or keeps: its ephemeral range and ip_local_reserved_ports. Empty
/// where they cannot be read.
[[nodiscard]] PortRanges kernel_ports();

}  // namespace amldist
