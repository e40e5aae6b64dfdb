// TCP with deadlines: connections that never wait for longer than they are told to.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/ipv4.hpp"
#include "core/port_ranges.hpp"
#include "core/result.hpp"
#include "os/clock.hpp"
#include "os/file_descriptor.hpp"

namespace amldist {

/// Where a process listens.
struct Endpoint {
  std::string host;  ///< IPv4 address or name
  std::uint16_t port = 0;

  [[nodiscard]] std::string to_string() const { return host + ":" + std::to_string(port); }
};

/// An address as the kernel takes it.
[[nodiscard]] sockaddr_in socket_address(Ipv4 address, std::uint16_t port) noexcept;

/// A listening, non-blocking socket on one interface, or on all. Port 0: any that is free. Errors: mismatch if the port
/// is in use, limit if this process may open no more files, else unavailable. The same limit ends every function here
/// that makes a socket.
[[nodiscard]] Result<FileDescriptor> listen_on(std::uint16_t port, Ipv4 interface = Ipv4{INADDR_ANY});
/// The same on any free port of a set but `taken`; an empty set stands for all ports. Errors: mismatch if none is free.
[[nodiscard]] Result<FileDescriptor> listen_within(const PortRanges& ports, Ipv4 interface = Ipv4{INADDR_ANY},
                                                   std::uint16_t taken = 0);
[[nodiscard]] std::uint16_t local_port(const FileDescriptor& socket) noexcept;

/// This machine's IPv4 addresses without loopback.
[[nodiscard]] std::vector<Ipv4> own_addresses();
/// The address from which this machine reaches another one; nullopt: it has no route.
[[nodiscard]] std::optional<Ipv4> source_address_to(Ipv4 address) noexcept;

/// A non-blocking connection in the making. Errors: unavailable when refused at once.
[[nodiscard]] Result<FileDescriptor> start_connection(Ipv4 address, std::uint16_t port);
/// The same, made by `deadline`. Errors: unavailable (refused, unreachable), timeout.
[[nodiscard]] Result<FileDescriptor> connect_to(Ipv4 address, std::uint16_t port, Clock::time_point deadline);
/// Accepts one connection, non-blocking; an invalid descriptor when there is none.
[[nodiscard]] FileDescriptor accept_on(const FileDescriptor& listener) noexcept;

[[nodiscard]] Ipv4 peer_address(const FileDescriptor& socket) noexcept;
[[nodiscard]] Ipv4 own_address(const FileDescriptor& socket) noexcept;

/// Waits until a socket can be read (or written); false at the deadline.
enum class Readiness : std::uint8_t { read, write };
[[nodiscard]] bool wait_until_ready(const FileDescriptor& socket, Readiness what, Clock::time_point deadline) noexcept;

/// Everything, by the deadline. Errors: timeout, unavailable when the peer has gone.
[[nodiscard]] Result<void> send_all(const FileDescriptor& socket, std::string_view bytes, Clock::time_point deadline);

}  // namespace amldist
