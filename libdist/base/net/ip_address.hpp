// Addresses of either family, as values.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/net/ipv4.hpp"

namespace amldist {

/// An IPv6 address in network byte order, or an IPv4 address mapped into one (::ffff:10.0.0.1), as the kernel does it
/// for sockets of both families.
struct IpAddress {
  std::array<unsigned char, 16> bytes{};

  IpAddress() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): every IPv4 address is one
  IpAddress(Ipv4 address) noexcept;
  /// Strict dotted quad, or an IPv6 address without a zone: link-local addresses mean nothing to another node.
  [[nodiscard]] static std::optional<IpAddress> parse(std::string_view text);
  /// From 16 bytes; nullopt for any other length.
  [[nodiscard]] static std::optional<IpAddress> from_bytes(std::string_view text) noexcept;

  [[nodiscard]] std::string_view as_bytes() const noexcept {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  /// "10.0.0.1", "fd00::1".
  [[nodiscard]] std::string to_string() const;
  /// nullopt for an IPv6 address.
  [[nodiscard]] std::optional<Ipv4> as_ipv4() const noexcept;
  [[nodiscard]] bool is_loopback() const noexcept;
  /// All zeros, or 0.0.0.0.
  [[nodiscard]] bool is_unspecified() const noexcept;
  /// fe80::/10.
  [[nodiscard]] bool is_link_local() const noexcept { return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80; }

  friend bool operator==(const IpAddress&, const IpAddress&) = default;
};

}  // namespace amldist
