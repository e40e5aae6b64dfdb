// The envelope of what srun and the nodes of its step say to each other: "aml-dist;1;TOKEN;FIELD;FIELD...".
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace amldist {

/// Longest datagram that srun takes.
inline constexpr std::size_t longest_datagram = 512;
/// Longest that it sends: what one UDP datagram can carry.
inline constexpr std::size_t longest_answer = 65507;

[[nodiscard]] std::string seal(std::uint64_t token, std::initializer_list<std::string_view> fields);

/// The fields, if the datagram is of this version, bears the token and has at least one; nullopt otherwise.
[[nodiscard]] std::optional<std::vector<std::string_view>> unseal(std::string_view datagram, std::uint64_t token);

/// A token as 16 hexadecimal digits, and back.
[[nodiscard]] std::string to_hexadecimal(std::uint64_t number);
[[nodiscard]] std::optional<std::uint64_t> from_hexadecimal(std::string_view digits) noexcept;

}  // namespace amldist
