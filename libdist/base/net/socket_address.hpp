// Addresses as the kernel takes them.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstring>

#include "base/net/ip_address.hpp"

namespace amldist {

/// An address as the kernel takes it, of either family.
class SocketAddress {
 public:
  SocketAddress() = default;
  SocketAddress(const IpAddress& address, std::uint16_t port) noexcept {
    if (const auto four = address.as_ipv4()) {
      sockaddr_in out = {};
      out.sin_family = AF_INET;
      out.sin_port = htons(port);
      out.sin_addr.s_addr = htonl(four->bits);
      std::memcpy(&bytes_, &out, length_ = sizeof out);
      return;
    }
    *this = of_ipv6(address, port);
  }
  /// A copy of what the kernel gave; of no family where that is neither IPv4 nor IPv6.
  explicit SocketAddress(const sockaddr& given) noexcept {
    const bool is_known = given.sa_family == AF_INET || given.sa_family == AF_INET6;
    if (is_known) std::memcpy(&bytes_, &given, given.sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
  }
  /// For a socket of IPv6: it takes an IPv4 address as one that is mapped into IPv6.
  [[nodiscard]] static SocketAddress of_ipv6(const IpAddress& address, std::uint16_t port) noexcept {
    sockaddr_in6 six = {};
    six.sin6_family = AF_INET6;
    six.sin6_port = htons(port);
    std::memcpy(&six.sin6_addr, address.bytes.data(), address.bytes.size());
    SocketAddress out;
    std::memcpy(&out.bytes_, &six, out.length_ = sizeof six);
    return out;
  }

  // The C interface takes a pointer to the family of address structures.
  [[nodiscard]] const sockaddr* generic() const noexcept { return reinterpret_cast<const sockaddr*>(&bytes_); }
  [[nodiscard]] sockaddr* generic() noexcept { return reinterpret_cast<sockaddr*>(&bytes_); }
  [[nodiscard]] socklen_t& length() noexcept { return length_; }
  [[nodiscard]] socklen_t length() const noexcept { return length_; }
  [[nodiscard]] int family() const noexcept { return bytes_.ss_family; }

  [[nodiscard]] IpAddress address() const noexcept {
    if (family() == AF_INET) return Ipv4{ntohl(as<sockaddr_in>().sin_addr.s_addr)};
    IpAddress out;
    if (family() != AF_INET6) return out;
    const auto six = as<sockaddr_in6>();
    std::memcpy(out.bytes.data(), &six.sin6_addr, out.bytes.size());
    return out;
  }
  [[nodiscard]] std::uint16_t port() const noexcept {
    if (family() == AF_INET) return ntohs(as<sockaddr_in>().sin_port);
    return family() == AF_INET6 ? ntohs(as<sockaddr_in6>().sin6_port) : std::uint16_t{0};
  }

 private:
  template <typename T>
  [[nodiscard]] T as() const noexcept {
    T out = {};
    std::memcpy(&out, &bytes_, sizeof out);
    return out;
  }

  sockaddr_storage bytes_ = {};
  socklen_t length_ = sizeof bytes_;
};

}  // namespace amldist
