// Priority flow control (IEEE 802.1Qbb) of an Ethernet interface, which the kernel tells over netlink only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace amldist {

/// The priorities with flow control, bit 3 for priority 3; nullopt: the interface does not tell (no data centre
/// bridging, no such interface). Any user may ask. At most a second; errors are nullopt.
[[nodiscard]] std::optional<std::uint8_t> priorities_with_flow_control(const std::string& interface);

/// The two halves of it: RTM_GETDCB with DCB_CMD_IEEE_GET, and what the kernel answers (linux/dcbnl.h).
[[nodiscard]] std::vector<std::byte> flow_control_request(const std::string& interface);
[[nodiscard]] std::optional<std::uint8_t> flow_control_of_reply(std::span<const std::byte> reply);

}  // namespace amldist
