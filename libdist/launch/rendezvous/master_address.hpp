// Chooses the master's address, once per step, where the step is launched.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/net/ipv4.hpp"
#include "base/text/result.hpp"
#include "launch/option/spec.hpp"
#include "launch/placement/step_facts.hpp"
#include "launch/rendezvous/rendezvous.hpp"
#include "launch/site/site_policy.hpp"

namespace amldist::launch {

/// What the choice needs to know from this machine. Each function may block on a name service. MASTER_ADDR takes a
/// bounded number of calls, the addresses of all nodes one or two calls per node.
struct NetworkView {
  /// Address by which Slurm reaches a node (NodeAddr), else what the name resolves to.
  std::function<Result<Ipv4>(const std::string& node)> address_of_node;
  /// Address of any name.
  std::function<Result<Ipv4>(const std::string& name)> resolve;
  /// Whether a name has addresses, but of IPv6 only. Asked about a name without IPv4; may be empty: no.
  std::function<bool(const std::string& name)> has_ipv6_only;
  /// Source address that this machine would use towards `peer`.
  std::function<Result<Ipv4>(Ipv4 peer)> source_towards;
  /// Whether this machine is that node.
  std::function<bool(const std::string& node)> is_here;
  /// Address of an interface of this machine.
  std::function<Result<Ipv4>(std::string_view interface, const std::optional<Ipv4Network>& network)> interface_address;
};

/// The interface name in "@ib0": only rank 0's node knows the address of its interface. nullopt for an address.
[[nodiscard]] std::optional<std::string_view> interface_to_ask(std::string_view address) noexcept;

/// The address for MASTER_ADDR: the host of rank 0, as a name or as IPv4, as `spec` and `policy` ask. Never loopback if
/// other nodes of the step have other addresses. If the site names an interface and rank 0's host is another machine:
/// "@" and the interface name. A host with IPv6 only is named: scripts split MASTER_ADDR:MASTER_PORT at ':', and few
/// programs take a bare IPv6 address. Errors: unavailable when the name does not resolve, or only to loopback; or has
/// IPv6 only where the user asks for an address, or the site for its IPv4 network.
[[nodiscard]] Result<std::string> choose_master_address(const Spec& spec, const SitePolicy& policy,
                                                        const Placement& placement, const NetworkView& network);

/// How TF_CONFIG names the step's other nodes, for kind tensorflow (for others, and on one node: empty): by name with
/// the site's suffix, or by address, as `spec` and `policy` ask for MASTER_ADDR. A host that the user names is rank 0's
/// node only; the others follow the site's rule. If the site names an interface, only each node knows its own address
/// there: the others are then found by the site's suffix, or by NodeAddr within the site's network. `master` is the
/// address chosen for rank 0's node, which is not looked up again. If one of the others has IPv6 only, all are named.
/// Errors: as choose_master_address(), and unavailable for an interface without suffix and network.
[[nodiscard]] Result<NodeHosts> choose_node_hosts(const Spec& spec, const SitePolicy& policy,
                                                  const Placement& placement, std::string_view master,
                                                  const NetworkView& network);

/// Refuses a master that the user set (key or variable) if every node would reach itself there, such as localhost, and
/// other nodes of the step have other addresses. Uses only address_of_node of `network`. Errors: mismatch.
[[nodiscard]] Result<void> refuse_loopback(const Rendezvous& rendezvous, const Placement& placement,
                                           const NetworkView& network);

/// The view of this machine: resolver, routing table and host name. `slurm_address` returns NodeAddr and may be empty.
[[nodiscard]] NetworkView this_machine(std::function<Result<Ipv4>(const std::string& node)> slurm_address);

/// Ports that this machine's kernel assigns or reserves: its ephemeral range and ip_local_reserved_ports. Empty if they
/// cannot be read.
[[nodiscard]] PortRanges kernel_ports();

}  // namespace amldist::launch
