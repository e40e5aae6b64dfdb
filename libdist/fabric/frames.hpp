// Length-prefixed frames over a stream socket, with deadlines.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.hpp"

namespace amldist::fabric {

using Deadline = std::chrono::steady_clock::time_point;

/// A frame's length before the text.
[[nodiscard]] std::string frame(std::string_view text);

/// Writes all of it. Errors: unavailable: closed, or not in time.
[[nodiscard]] Result<void> write_all(int socket, std::string_view bytes, Deadline deadline);

/// Reads one frame of at most `most` bytes. Errors: unavailable: closed, or not in time; limit.
[[nodiscard]] Result<std::string> read_frame(int socket, std::size_t most, Deadline deadline);

/// What has come of a frame so far.
class FrameReader {
 public:
  explicit FrameReader(std::size_t most) : most_(most) {}
  enum class State { incomplete, complete, closed, too_long };
  /// Reads what is there without waiting.
  [[nodiscard]] State read(int socket);
  /// The complete frame's text; the reader is then empty again.
  [[nodiscard]] std::string take();

 private:
  [[nodiscard]] State state() const;
  [[nodiscard]] std::size_t missing() const;
  std::size_t most_;
  std::string bytes_;
};

}  // namespace amldist::fabric
