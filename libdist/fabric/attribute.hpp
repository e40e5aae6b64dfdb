// One file of sysfs, read once with its limits: a value, an absence, or a reason why it is neither.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace amldist::fabric {

/// What reading one attribute came to.
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
  /// The value, or in words why there is none: for evidence.
  [[nodiscard]] std::string shown() const;
};

/// Longest attribute that is believed, in bytes: a page, as sysfs itself has it.
inline constexpr std::size_t longest_attribute = 4096;

/// Reads a regular file without waiting (a FIFO in its place is unreadable) and at most longest_attribute bytes.
[[nodiscard]] Attribute read_attribute(const std::string& path);

/// Names in a folder, sorted as people count (mlx5_2 before mlx5_10), without "." and ".."; at most `most`, and names
/// that are not printable are left out. `problem` gets the reason when the folder is there but cannot be read.
[[nodiscard]] std::vector<std::string> list_folder(const std::string& path, std::size_t most, std::string* problem);

/// Whether a folder exists, following links.
[[nodiscard]] bool is_folder(const std::string& path);

/// The path with all links resolved, empty if it has none.
[[nodiscard]] std::string resolved(const std::string& path);

}  // namespace amldist::fabric
