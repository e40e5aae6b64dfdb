#include "launch/rendezvous/master_address.hpp"

#include <algorithm>
#include <vector>

#include "base/net/name_lookup.hpp"
#include "base/net/own_network.hpp"
#include "base/os/environment.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"

namespace amldist::launch {
namespace {

using text::concat;
using text::quote;

Error unreachable_name(const std::string& host, const std::string& why) {
  return {Errc::unavailable, concat({"the host ", quote(host), " has no address that its peers can use: ", why,
                                     "; correct /etc/hosts or the name service, or give master_addr=name"})};
}

/// Replaces a loopback address of a node: if this machine is that node, by the source address towards a peer.
Result<Ipv4> beyond_loopback(const std::string& host, Ipv4 loopback, const std::string& peer_host,
                             const NetworkView& network) {
  const auto peer = network.address_of_node(peer_host);
  if (!peer) return peer.error();
  // Several slurmd run on one machine: every node has the same address, and loopback is right.
  if (*peer == loopback) return loopback;
  if (!network.is_here(host)) return unreachable_name(host, concat({"here it resolves to ", loopback.to_string()}));
  auto source = network.source_towards(*peer);
  if (!source) return source.error();
  if (source->is_loopback()) {
    return unreachable_name(host, concat({"the route to ", peer_host, " begins at ", source->to_string()}));
  }
  return source;
}

Result<void> check_network(const SitePolicy& policy, const std::string& name, Ipv4 address) {
  if (!policy.network || policy.network->contains(address)) return {};
  return Error{Errc::mismatch, concat({"the host ", quote(name), " has the address ", address.to_string(),
                                       ", outside the site's network ", policy.network->to_string(),
                                       ": ask the administrator to set suffix= or network="})};
}

/// The address of a node by the site's rules. Never loopback when the step has nodes with other addresses.
Result<Ipv4> address_of(const SitePolicy& policy, const Placement& placement, std::uint32_t node,
                        const NetworkView& network) {
  const std::string host = placement.hosts.at(node);
  const std::string name = host + policy.suffix;
  auto address = policy.suffix.empty() ? network.address_of_node(host) : network.resolve(name);
  if (!address) return address.error();
  if (address->is_loopback() && placement.map.nodes() > 1) {
    const bool is_master = node == placement.map.node_of(0);
    const std::uint32_t peer = is_master ? placement.map.node_at(1) : placement.map.node_of(0);
    address = beyond_loopback(host, *address, placement.hosts.at(peer), network);
    if (!address) return address.error();
  }
  if (auto status = check_network(policy, name, *address); !status) return status.error();
  return address;
}

MasterAddress::Form form_of(const Spec& spec, const SitePolicy& policy) {
  using Form = MasterAddress::Form;
  const Form form = spec.master_addr.form;
  return form == Form::ip || form == Form::name ? form : policy.master_addr;
}

/// Whether a host without IPv4 is named instead: the user does not insist on an address, nor the site on its network.
bool may_be_named(const Spec& spec, const SitePolicy& policy, const std::string& host, const NetworkView& network) {
  return spec.master_addr.form != MasterAddress::Form::ip && !policy.network && network.has_ipv6_only &&
         network.has_ipv6_only(host + policy.suffix);
}

Result<std::string> address_on_interface(const SitePolicy& policy, const std::string& host,
                                         const NetworkView& network) {
  if (!network.is_here(host)) return concat({"@", policy.interface});
  const auto address = network.interface_address(policy.interface, policy.network);
  if (!address) return address.error();
  return address->to_string();
}

/// Whether the name resolves is for rank 0's node to say: it may have another name service than this machine.
Result<std::string> name_of(const SitePolicy& policy, const std::string& host, const NetworkView& network) {
  std::string name = host + policy.suffix;
  const auto address = policy.network ? network.resolve(name) : Result<Ipv4>(Error{Errc::unavailable, ""});
  if (!address || address->is_loopback()) return name;
  if (auto status = check_network(policy, name, *address); !status) return status.error();
  return name;
}

/// Whether the address leads each node to itself. Connecting to 0.0.0.0 does so too.
bool means_oneself(std::string_view address) {
  if (const auto literal = Ipv4::parse(address)) return literal->is_loopback() || literal->bits == 0;
  const std::string name = text::to_lower(address);
  return name == "localhost" || name.starts_with("localhost.") || name.ends_with(".localhost");
}

Result<Ipv4> resolve_ipv4(const std::string& name) {
  if (const auto literal = Ipv4::parse(name)) return *literal;
  const auto found = ask_resolver(name);
  if (!found) return Error{found.error().code, concat({found.error().message, ": add it to the name service"})};
  if (const auto address = found->front().as_ipv4()) return *address;
  return Error{Errc::unavailable,
               concat({"the host name ", quote(name), " has no IPv4 address (", found->front().to_string(),
                       " is IPv6), and scripts split MASTER_ADDR:MASTER_PORT at ':': use master_addr=name"})};
}

bool has_ipv6_only(const std::string& name) {
  const auto found = ask_resolver(name);
  return found && !found->front().as_ipv4();  // IPv4 comes first
}

bool is_this_host(const std::string& node) {
  if (own_variable("SLURMD_NODENAME") == node) return true;
  const std::string full = own_host_name();
  return node == full || node == full.substr(0, full.find('.'));
}

}  // namespace

Result<std::string> choose_master_address(const Spec& spec, const SitePolicy& policy, const Placement& placement,
                                          const NetworkView& network) {
  using Form = MasterAddress::Form;
  if (spec.master_addr.form == Form::host) return spec.master_addr.host;
  const std::string host = placement.master_host();
  if (form_of(spec, policy) == Form::name) return name_of(policy, host, network);
  if (!policy.interface.empty()) return address_on_interface(policy, host, network);
  const auto address = address_of(policy, placement, placement.map.node_of(0), network);
  if (address) return address->to_string();
  if (may_be_named(spec, policy, host, network)) return host + policy.suffix;
  return address.error();
}

Result<NodeHosts> choose_node_hosts(const Spec& spec, const SitePolicy& policy, const Placement& placement,
                                    std::string_view master, const NetworkView& network) {
  if (spec.kind != Kind::tensorflow || placement.map.nodes() == 1) return NodeHosts();
  if (form_of(spec, policy) == MasterAddress::Form::name) return NodeHosts::names(policy.suffix);
  if (!policy.interface.empty() && policy.suffix.empty() && !policy.network) {
    return Error{
        Errc::unavailable,
        concat({"TF_CONFIG names all nodes, but only each node itself knows its address on the site's "
                "interface ",
                policy.interface, ": use master_addr=name, or ask the administrator for suffix= or network="})};
  }
  std::vector<Ipv4> addresses(placement.hosts.size(), Ipv4{});
  const std::uint32_t first = placement.map.node_of(0);
  for (std::uint32_t node = 0; node < addresses.size(); ++node) {
    if (node == first) {
      addresses[node] = Ipv4::parse(master).value_or(Ipv4{});
      continue;
    }
    const auto address = address_of(policy, placement, node, network);
    if (!address && may_be_named(spec, policy, placement.hosts.at(node), network))
      return NodeHosts::names(policy.suffix);
    if (!address) return address.error();
    addresses[node] = *address;
  }
  return NodeHosts::addresses(addresses);
}

Result<void> refuse_loopback(const Rendezvous& rendezvous, const Placement& placement, const NetworkView& network) {
  const std::uint32_t nodes = placement.map.nodes();
  if (rendezvous.address_origin == Origin::computed || nodes == 1 || !means_oneself(rendezvous.address)) return {};
  const auto peer = network.address_of_node(placement.hosts.at(placement.map.node_at(1)));
  if (peer && peer->is_loopback()) return {};  // several slurmd on one machine
  const bool key = rendezvous.address_origin == Origin::option;
  return Error{Errc::mismatch,
               concat({key ? "master_addr=" : "MASTER_ADDR=", rendezvous.address,
                       " leads every node to itself, and the step has ", std::to_string(nodes),
                       " nodes: ", key ? "drop the key" : "unset the variable", " to let aml-dist choose"})};
}

std::optional<std::string_view> interface_to_ask(std::string_view address) noexcept {
  return address.starts_with('@') ? std::optional(address.substr(1)) : std::nullopt;
}

NetworkView this_machine(std::function<Result<Ipv4>(const std::string& node)> slurm_address) {
  NetworkView view;
  view.address_of_node = [slurm_address = std::move(slurm_address)](const std::string& node) -> Result<Ipv4> {
    if (slurm_address) {
      if (auto address = slurm_address(node)) return address;
    }
    return resolve_ipv4(node);
  };
  view.resolve = resolve_ipv4;
  view.has_ipv6_only = has_ipv6_only;
  view.source_towards = source_address_towards;
  view.is_here = is_this_host;
  view.interface_address = address_of_interface;
  return view;
}

PortRanges kernel_ports() {
  constexpr std::size_t longest_list = 64 * 1024;
  std::string ephemeral = first_line_of("/proc/sys/net/ipv4/ip_local_port_range");
  std::string reserved = read_file_start("/proc/sys/net/ipv4/ip_local_reserved_ports", longest_list);
  reserved.erase(std::min(reserved.find('\n'), reserved.size()));
  for (char& c : ephemeral) {
    if (c == '\t' || c == ' ') c = '-';
  }
  const bool both = !ephemeral.empty() && !reserved.empty();
  auto ports = PortRanges::parse(concat({ephemeral, both ? "," : "", reserved}));
  return ports ? *ports : PortRanges{};
}

}  // namespace amldist::launch
