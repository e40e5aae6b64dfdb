// The operations of a communicator, by the numbers that the flight recorder's files carry.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace amldist {

/// What a call on a communicator does. The values are part of the recorder's file format: only ever add.
enum class Operation : std::uint8_t {
  none = 0,
  open = 1,  ///< a communicator comes into being: the first call of each of its members
  all_reduce = 2,
  reduce = 3,
  broadcast = 4,
  all_gather = 5,
  all_gather_v = 6,
  reduce_scatter = 7,
  all_to_all = 8,
  all_to_all_v = 9,
  gather = 10,
  scatter = 11,
  send = 12,
  receive = 13,
  barrier = 14,
  split = 15,
  close = 16,
};

inline constexpr std::array<std::string_view, 17> operation_names = {
    "none",         "open",           "all-reduce", "reduce",       "broadcast", "all-gather",
    "all-gather-v", "reduce-scatter", "all-to-all", "all-to-all-v", "gather",    "scatter",
    "send",         "receive",        "barrier",    "split",        "close"};

/// "all-reduce"; "unknown" for a number that a file may hold but no operation has.
[[nodiscard]] constexpr std::string_view to_string(Operation operation) noexcept {
  const auto number = static_cast<std::size_t>(operation);
  return number < operation_names.size() ? operation_names[number] : "unknown";
}

/// Whether every member of the communicator makes this call; send and receive concern two ranks only.
[[nodiscard]] constexpr bool is_collective(Operation operation) noexcept {
  return operation != Operation::none && operation != Operation::send && operation != Operation::receive;
}

}  // namespace amldist
