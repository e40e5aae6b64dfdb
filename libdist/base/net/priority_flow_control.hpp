// Priority flow control (IEEE 802.1Qbb) of an Ethernet interface. The kernel reports it only over netlink.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace amldist {

/// The priorities with flow control, bit 3 for priority 3; nullopt if the interface does not report it (no data centre
/// bridging, no such interface) or on any error. Takes at most a second and needs no privilege.
[[nodiscard]] std::optional<std::uint8_t> priorities_with_flow_control(const std::string& interface);

/// Its two halves: the request (RTM_GETDCB with DCB_CMD_IEEE_GET) and the reading of the kernel's answer
/// (linux/dcbnl.h).
[[nodiscard]] std::vector<std::byte> flow_control_request(const std::string& interface);
[[nodiscard]] std::optional<std::uint8_t> flow_control_of_reply(std::span<const std::byte> reply);

}  // namespace amldist
