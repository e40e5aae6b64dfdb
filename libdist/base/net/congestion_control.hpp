// Which algorithm paces what a connection sends.
//
// BBR, which some sites make the system's default for the sake of long distances, sends no faster than it has measured
// a connection to be, and measures that over many round trips. Between the nodes of a cluster, where a round trip takes
// microseconds and a receiver that computes reads in bursts, a connection then carries less than half of what it could
// (docs/performance.md).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/os/file_descriptor.hpp"

namespace amldist::congestion_control {

/// As the system has it, but Reno, which each kernel has and each process may choose, in place of BBR.
inline constexpr std::string_view automatic = "auto";
/// As the system has it.
inline constexpr std::string_view of_system = "system";

/// Whether a choice is valid: automatic, of_system, or the name of an algorithm that the kernel lets this process use.
[[nodiscard]] bool is_valid(std::string_view choice);
/// The choices that are valid for each process of this machine: automatic, of_system, "reno", ...
[[nodiscard]] std::vector<std::string> choices();

/// Gives a TCP connection the algorithm. If the kernel refuses, the connection keeps its own.
void choose(const FileDescriptor& connection, std::string_view choice) noexcept;

/// That of a TCP socket; empty for any other descriptor.
[[nodiscard]] std::string name_of(const FileDescriptor& connection);

}  // namespace amldist::congestion_control
