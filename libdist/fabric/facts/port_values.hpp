// Parses the kernel's values for a port, strictly. Formats: drivers/infiniband/core/sysfs.c.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace amldist::fabric {

/// `state`: "4: ACTIVE".
enum class PortState { nop = 0, down = 1, init = 2, armed = 3, active = 4, active_defer = 5 };

/// `phys_state`: "5: LinkUp".
enum class PhysicalState {
  unknown = 0,
  sleep = 1,
  polling = 2,
  disabled = 3,
  training = 4,
  link_up = 5,
  recovery = 6,
  test = 7
};

/// nullopt unless the number is one of these and followed by ": WORD" or by nothing. WORD differs between kernels, but
/// of 4 it must be ACTIVE, and of 5 (physical) LinkUp.
[[nodiscard]] std::optional<PortState> parse_state(std::string_view text);
[[nodiscard]] PhysicalState parse_physical_state(std::string_view text);

/// `rate`: "400 Gb/sec (4X NDR)", "2.5 Gb/sec (1X SDR)". Speed names change; only number and width are used.
struct Rate {
  double gbps = 0;
  std::uint32_t lanes = 0;
  std::string speed;  ///< "NDR"; empty if the kernel reports no name
};
[[nodiscard]] std::optional<Rate> parse_rate(std::string_view text);

/// `lid`, `sm_lid`, `pkeys/N`: "0x1a", "0x8018"; up to 16 bits.
[[nodiscard]] std::optional<std::uint16_t> parse_hex16(std::string_view text) noexcept;

/// `gids/N`: eight groups of four hexadecimal digits.
struct Gid {
  std::array<std::uint8_t, 16> bytes{};

  [[nodiscard]] static std::optional<Gid> parse(std::string_view text) noexcept;
  [[nodiscard]] bool is_zero() const noexcept;
  /// fe80::/64.
  [[nodiscard]] bool is_link_local() const noexcept;
  /// fe80:: with an empty interface id: a port without an address.
  [[nodiscard]] bool is_unconfigured() const noexcept;
  /// ::ffff:a.b.c.d, also below the multicast prefix ff0e.
  [[nodiscard]] bool is_ipv4() const noexcept;
  /// 169.254.0.0/16: an interface that no DHCP server has answered.
  [[nodiscard]] bool is_ipv4_link_local() const noexcept;
  /// Bytes 4 and 5: InfiniBand's FLID, by which routers find a subnet; 0 if it has no FLID.
  [[nodiscard]] std::uint16_t flid() const noexcept;
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const Gid&, const Gid&) = default;
};

enum class LinkLayer { infiniband, ethernet, other };
/// "InfiniBand", "Ethernet"; anything else ("Unspecified", "Unknown") is `other`.
[[nodiscard]] LinkLayer parse_link_layer(std::string_view text) noexcept;

}  // namespace amldist::fabric
