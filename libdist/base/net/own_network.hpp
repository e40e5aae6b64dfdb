// How this node sees itself: the loopback trap of Debian's /etc/hosts, and the interface that leads to the peers.
//
// A stock Debian maps a host's own name to 127.0.1.1. Programs that look up their own name to find the address that
// they give to others (Gloo does) then give one that leads nowhere.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/net/ipv4.hpp"
#include "base/text/result.hpp"

namespace amldist {

/// The first IPv4 address that a hosts(5) file gives `name`; nullopt without one.
[[nodiscard]] std::optional<Ipv4> find_in_hosts(std::string_view content, std::string_view name);

/// The same in this machine's /etc/hosts, of which at most 4 MiB are read. No name server is asked: slurmstepd must not
/// wait for one.
[[nodiscard]] std::optional<Ipv4> hosts_file_address(std::string_view name);

/// This machine's host name, as programs look it up.
[[nodiscard]] std::string own_host_name();

/// The first IPv4 address of an interface of this machine that is not loopback, of those in `network` if the site names
/// one. Errors: unavailable.
[[nodiscard]] Result<Ipv4> address_of_interface(std::string_view name, const std::optional<Ipv4Network>& network);

/// Whether an interface of this machine has the address.
[[nodiscard]] bool is_own_address(Ipv4 address);

/// The source address that this machine would use towards `peer`. Errors: unavailable.
[[nodiscard]] Result<Ipv4> source_address_towards(Ipv4 peer);

/// The name of the interface by which this machine would reach `peer`. Errors: unavailable.
[[nodiscard]] Result<std::string> interface_towards(Ipv4 peer);

}  // namespace amldist
