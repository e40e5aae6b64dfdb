// How this node sees its own addresses: Debian's loopback entry in /etc/hosts, and the interface that leads to the
// peers.
//
// A stock Debian maps a host's own name to 127.0.1.1. A program that looks up its own name to find the address that it
// announces to others (Gloo does) then announces one that no other node can reach.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/net/ip_address.hpp"
#include "base/net/ipv4.hpp"
#include "base/text/result.hpp"

namespace amldist {

/// The first IPv4 address that a hosts(5) file gives for `name`; nullopt if the file does not list it.
[[nodiscard]] std::optional<Ipv4> find_in_hosts(std::string_view content, std::string_view name);

/// The same from this machine's /etc/hosts, of which at most 4 MiB are read. Asks no name server, because slurmstepd
/// must not wait for one.
[[nodiscard]] std::optional<Ipv4> hosts_file_address(std::string_view name);

/// This machine's host name, as programs look it up.
[[nodiscard]] std::string own_host_name();

/// The first IPv4 address of a network interface of this machine other than loopback; if the site names a network, of
/// those in `network`. Errors: unavailable.
[[nodiscard]] Result<Ipv4> address_of_interface(std::string_view name, const std::optional<Ipv4Network>& network);

/// The source address that the kernel would use towards `peer`. Errors: unavailable.
[[nodiscard]] Result<Ipv4> source_address_towards(Ipv4 peer);

/// The name of the interface through which this machine reaches `peer`. Errors: unavailable.
[[nodiscard]] Result<std::string> interface_towards(const IpAddress& peer);

}  // namespace amldist
