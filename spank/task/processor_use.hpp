// What a node's tasks have used of the processors that the step held there.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace amldist::spank {

/// Processor time of the children that this process has waited for, and of theirs.
[[nodiscard]] std::chrono::milliseconds time_of_children() noexcept;

/// "processors of node1: 12.3 s used of 40.0 s held (31 %)".
[[nodiscard]] std::string processor_line(const std::string& host, std::chrono::milliseconds used,
                                         std::uint64_t processors, std::chrono::milliseconds elapsed);

}  // namespace amldist::spank
