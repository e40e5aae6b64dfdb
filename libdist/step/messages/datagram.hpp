// The format of all messages between srun and the nodes of its step: "aml-dist;1;TOKEN;FIELD;FIELD...".
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace amldist::step {

/// Longest datagram that srun accepts, in bytes.
inline constexpr std::size_t longest_datagram = 1400;
/// Longest datagram that srun sends, in bytes: the limit of UDP.
inline constexpr std::size_t longest_answer = 65507;

[[nodiscard]] std::string encode(std::uint64_t token, std::initializer_list<std::string_view> fields);

/// The fields, if the datagram has this version, the right token and at least one field; nullopt otherwise.
[[nodiscard]] std::optional<std::vector<std::string_view>> decode(std::string_view datagram, std::uint64_t token);

/// A token as 16 hexadecimal digits, and back.
[[nodiscard]] std::string to_hexadecimal(std::uint64_t number);
[[nodiscard]] std::optional<std::uint64_t> from_hexadecimal(std::string_view digits) noexcept;

}  // namespace amldist::step
