// The last words of a dead task, read by root from a file that a user may have written.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace amldist::collective {

struct Recording;

/// Longest text that describe_last_call() makes.
inline constexpr std::size_t longest_last_call = 120;

/// "in allreduce #42 (1048576 float32, 4 MiB)", or "after allreduce #41 (...)" where it was in none; nullopt without a
/// call. "in allreduce #42 (...) broken by another rank" where the call failed because another process had died or
/// left. Made of our own words and of numbers only, whatever the file held.
[[nodiscard]] std::optional<std::string> describe_last_call(const Recording& recording);

/// Whether a text is one that describe_last_call() can have made: it fits a datagram and a terminal.
[[nodiscard]] bool is_last_call(std::string_view text) noexcept;

/// Whether such a text says that another rank broke the call: the task's end then was a consequence, not the cause.
[[nodiscard]] bool is_broken_by_another(std::string_view text) noexcept;

/// The last call of a rank that has ended, from its recorder under one of `roots`, node-local folders such as
/// /dev/shm/aml-dist-1000: a folder that a variable of the user names is never opened by root, as it might be anywhere.
/// Every part of the path and the file must belong to `user` and be no link. nullopt: there is none to be had.
[[nodiscard]] std::optional<std::string> last_call_of(std::span<const std::string> roots, unsigned user,
                                                      std::string_view step, std::uint32_t rank);

}  // namespace amldist::collective
