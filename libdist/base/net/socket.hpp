// TCP with deadlines: no call waits longer than the caller allows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/net/ip_address.hpp"
#include "base/os/file_descriptor.hpp"
#include "base/text/port_ranges.hpp"
#include "base/text/result.hpp"
#include "base/time/clock.hpp"

namespace amldist {

/// The address on which a process listens.
struct Endpoint {
  std::string host;  ///< address or name
  std::uint16_t port = 0;

  /// "node1:20000", "[fd00::1]:20000".
  [[nodiscard]] std::string to_string() const {
    const bool has_colon = host.find(':') != std::string::npos;
    return (has_colon ? "[" + host + "]" : host) + ":" + std::to_string(port);
  }
};

/// A listening, non-blocking socket at one address of this machine; unspecified: on all addresses, of both families if
/// the system has IPv6. Port 0: any free port. Errors: mismatch if the port is in use, limit if this process may open
/// no more files, else unavailable. Every function here that makes a socket may return limit.
[[nodiscard]] Result<FileDescriptor> listen_on(std::uint16_t port, const IpAddress& interface = {});
/// The same on any free port of a set except `taken`; an empty set means all ports. Errors: mismatch if no port is
/// free.
[[nodiscard]] Result<FileDescriptor> listen_within(const PortRanges& ports, const IpAddress& interface = {},
                                                   std::uint16_t taken = 0);
[[nodiscard]] std::uint16_t local_port(const FileDescriptor& socket) noexcept;

/// This machine's addresses by which others may reach it, IPv4 first, without loopback and link-local ones.
[[nodiscard]] std::vector<IpAddress> own_addresses();
/// The address from which this machine reaches another one; nullopt if it has no route.
[[nodiscard]] std::optional<IpAddress> source_address_to(const IpAddress& address) noexcept;

/// Starts a non-blocking connection. Errors: unavailable when refused at once.
[[nodiscard]] Result<FileDescriptor> start_connection(const IpAddress& address, std::uint16_t port);
/// Connects by `deadline`. Errors: unavailable (refused, unreachable), timeout.
[[nodiscard]] Result<FileDescriptor> connect_to(const IpAddress& address, std::uint16_t port,
                                                Clock::time_point deadline);
/// Accepts one connection, non-blocking; an invalid descriptor if no connection is waiting.
[[nodiscard]] FileDescriptor accept_on(const FileDescriptor& listener) noexcept;

/// Unspecified for a socket that is not a network socket.
[[nodiscard]] IpAddress peer_address(const FileDescriptor& socket) noexcept;
[[nodiscard]] IpAddress own_address(const FileDescriptor& socket) noexcept;

/// Waits until a socket can be read (or written); false at the deadline.
enum class Readiness : std::uint8_t { read, write };
[[nodiscard]] bool wait_until_ready(const FileDescriptor& socket, Readiness what, Clock::time_point deadline) noexcept;

/// Sends everything by the deadline. Errors: timeout, unavailable when the peer has gone.
[[nodiscard]] Result<void> send_all(const FileDescriptor& socket, std::string_view bytes, Clock::time_point deadline);

}  // namespace amldist
