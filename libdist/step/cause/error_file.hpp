// What only the user's rights may find out about the end of a task: the exception that a rank has left in a file, and
// whether a file system that it uses is full. For answer_as_user(): never as root.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "step/cause/cause.hpp"

namespace amldist::step {

/// Where to look.
struct ErrorPlaces {
  std::vector<std::string> roots = {};  ///< the user's folders of steps (trace/record/record_folder.hpp)
  std::string step = {};                ///< "12.0"
  std::uint32_t rank = 0;
  uid_t user = 0;
  std::string elastic_file = {};  ///< TORCHELASTIC_ERROR_FILE; empty: not set
  std::uint64_t elapsed_ms = 0;   ///< since the step came to this node: what was written earlier is another step's
  std::string folder = {};        ///< where the task works
  bool had_bus_error = false;     ///< SIGBUS
};

struct UserFindings {
  std::optional<Cause> exception = {};
  std::optional<Cause> space = {};  ///< that a file system is full: space or fact

  [[nodiscard]] std::string to_string() const;
  /// Of untrusted text: what to_string() cannot have written counts as nothing.
  [[nodiscard]] static UserFindings parse(std::string_view text);

  friend bool operator==(const UserFindings&, const UserFindings&) = default;
};

/// Reads, and removes the file of the package amldist. Opens no link, FIFO or device.
[[nodiscard]] UserFindings find_as_user(const ErrorPlaces& places);

}  // namespace amldist::step
