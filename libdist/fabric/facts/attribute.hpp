// Reads one sysfs file within limits. The result is a value, an absence, or a reason why the value is unreadable.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace amldist::fabric {

/// Result of reading one attribute.
struct Attribute {
  enum class State {
    absent,      ///< no such file
    present,     ///< `text` is the value: not empty, one line, printable ASCII
    unreadable,  ///< `text` says why: an errno, empty, too long, not text
  };
  State state = State::absent;
  std::string text;

  [[nodiscard]] bool present() const noexcept { return state == State::present; }
  [[nodiscard]] bool absent() const noexcept { return state == State::absent; }
  /// The value, or the reason why there is no value; used in evidence.
  [[nodiscard]] std::string shown() const;
};

/// Longest attribute that is accepted, in bytes: one page, the limit of sysfs.
inline constexpr std::size_t longest_attribute = 4096;

/// Reads at most longest_attribute bytes of a regular file. Never blocks: a FIFO at this path is unreadable.
[[nodiscard]] Attribute read_attribute(const std::string& path);

/// Names in a folder in natural order (mlx5_2 before mlx5_10), without "." and "..", at most `most`. Names that are not
/// printable are left out. `problem` gets the reason if the folder exists but cannot be read.
[[nodiscard]] std::vector<std::string> list_folder(const std::string& path, std::size_t most, std::string* problem);

/// Whether a folder exists, following links.
[[nodiscard]] bool is_folder(const std::string& path);

/// The path with all symbolic links resolved; empty if that fails.
[[nodiscard]] std::string resolved(const std::string& path);

/// Replaces bytes that are not printable ASCII by \xNN, so that text from sysfs or a peer is safe for a terminal.
[[nodiscard]] std::string printable(std::string_view input, std::size_t longest = 120);

}  // namespace amldist::fabric
