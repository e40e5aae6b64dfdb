// UDP of both families, without waiting.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <tuple>

#include "base/net/ip_address.hpp"
#include "base/os/file_descriptor.hpp"

namespace amldist {

/// Where a datagram comes from or goes to.
struct DatagramPlace {
  IpAddress address;
  std::uint16_t port = 0;

  friend bool operator==(const DatagramPlace&, const DatagramPlace&) = default;
  friend bool operator<(const DatagramPlace& left, const DatagramPlace& right) noexcept {
    return std::tie(left.address.bytes, left.port) < std::tie(right.address.bytes, right.port);
  }
};

/// A datagram socket that never blocks. It is not connected: a machine with several addresses may answer from another
/// one than was asked.
class DatagramSocket {
 public:
  /// For a peer's address: of its family.
  [[nodiscard]] static DatagramSocket towards(const IpAddress& peer) noexcept;
  /// Of both families, or of IPv4 alone if the system has no IPv6.
  [[nodiscard]] static DatagramSocket for_all() noexcept;

  /// False if the system gives no socket.
  explicit operator bool() const noexcept { return static_cast<bool>(socket_); }
  [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }

  /// Takes a port on all addresses; 0: any free one. False, with errno, if it is taken.
  [[nodiscard]] bool bind(std::uint16_t port) const noexcept;
  /// The port that it has; 0: none.
  [[nodiscard]] std::uint16_t port() const noexcept;

  /// Like any datagram it may be lost. Whether the kernel took it.
  bool send(std::string_view bytes, const DatagramPlace& to) const noexcept;
  /// Reads a datagram, as much of it as fits, and returns its length; nullopt if no datagram has arrived.
  [[nodiscard]] std::optional<std::size_t> receive(std::span<char> buffer, DatagramPlace& from) const noexcept;

 private:
  DatagramSocket(FileDescriptor socket, bool is_ipv6) noexcept;

  FileDescriptor socket_;
  bool is_ipv6_;  ///< then it takes an IPv4 address as an address mapped into IPv6
};

}  // namespace amldist
