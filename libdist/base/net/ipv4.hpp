// IPv4 addresses and networks, as values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace amldist {

/// An IPv4 address in host byte order.
struct Ipv4 {
  std::uint32_t bits = 0;

  /// Strict dotted quad: four decimal numbers up to 255, no leading zeros.
  [[nodiscard]] static std::optional<Ipv4> parse(std::string_view text) noexcept;
  [[nodiscard]] std::string to_string() const;
  /// 127.0.0.0/8, which includes Debian's 127.0.1.1.
  [[nodiscard]] bool is_loopback() const noexcept { return (bits >> 24) == 127; }

  friend bool operator==(const Ipv4&, const Ipv4&) = default;
};

/// A network in CIDR form: "10.1.0.0/16".
struct Ipv4Network {
  Ipv4 base;
  std::uint8_t prefix = 32;

  [[nodiscard]] static std::optional<Ipv4Network> parse(std::string_view text) noexcept;
  [[nodiscard]] bool contains(Ipv4 address) const noexcept;
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const Ipv4Network&, const Ipv4Network&) = default;
};

}  // namespace amldist
