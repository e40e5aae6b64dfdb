// The exception that ended a rank, from a file that a program of the user's has written: of the package amldist, or
// TORCHELASTIC_ERROR_FILE. Everything in it is text to be cleaned and shown, and decides only which of two ranks that
// failed in the same second is called the first.
//
//   amldist-error 1            then seconds since boot, type, text, file, line and function, each in a line of its own
//   {"message": {"message": "RuntimeError: shape mismatch", "extraInfo": {"py_callstack": "Traceback ..."}}}
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "step/cause/cause.hpp"

namespace amldist::step {

/// Longest text of an exception with its place, in bytes.
inline constexpr std::size_t longest_exception = 200;
/// By CLOCK_MONOTONIC: when the step came to the node, and now.
struct MonotonicSeconds {
  std::uint64_t first = 0;
  std::uint64_t last = std::uint64_t{1} << 40;
};
/// First line of the package's file.
inline constexpr std::string_view exception_file_head = "amldist-error 1";
/// As much as is read of either file.
inline constexpr std::size_t longest_error_file = std::size_t{64} << 10;

/// nullopt for anything that is not such a file, and for one of the package that is not from this time.
[[nodiscard]] std::optional<Cause> parse_exception(std::string_view content, MonotonicSeconds time = {});

/// Whether an exception is about another rank or the way to it.
[[nodiscard]] bool is_about_peer(std::string_view type, std::string_view text);

/// Name of the package's file in the step's folder of the user's (trace/record/record_folder.hpp): "3.error".
[[nodiscard]] std::string error_file_name(std::uint32_t rank);

}  // namespace amldist::step
