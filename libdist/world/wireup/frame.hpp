// Frames: a length, a kind, and fields. README.md has the format.
//
// Whatever is read here may come from a stranger. A reader never reads beyond its frame, and a missing field reads as
// zero or empty.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/os/file_descriptor.hpp"
#include "base/text/result.hpp"
#include "base/time/clock.hpp"

namespace amldist::world {

/// Bytes of the length that precedes a frame.
inline constexpr std::size_t frame_head = 4;

/// Builds a frame. `Kind` is an enumeration of one byte; each user of a connection has its own, with distinct values.
class FrameWriter {
 public:
  template <typename Kind>
  explicit FrameWriter(Kind kind) : content_(frame_head, '\0') {
    static_assert(sizeof(Kind) == 1);
    content_.push_back(static_cast<char>(kind));
  }
  FrameWriter& number(std::uint64_t value);
  FrameWriter& text(std::string_view value);
  /// The whole frame, with its length in front. The writer must not be used afterwards.
  [[nodiscard]] std::string take();

 private:
  std::string content_;
};

/// A received frame, whose fields are read in order.
class Frame {
 public:
  Frame() = default;
  /// `content`: kind and fields, without the length.
  explicit Frame(std::string content) : content_(std::move(content)) {}
  /// The kind; a byte that is no enumerator of `Kind` gives a value without a name.
  template <typename Kind>
  [[nodiscard]] Kind kind() const noexcept {
    static_assert(sizeof(Kind) == 1);
    return content_.empty() ? Kind{} : static_cast<Kind>(content_[0]);
  }
  [[nodiscard]] std::uint64_t number() noexcept;
  [[nodiscard]] std::string text();
  /// Kind and fields, regardless of what has been read.
  [[nodiscard]] const std::string& content() const noexcept { return content_; }
  /// Whether a missing field has been read.
  [[nodiscard]] bool is_short() const noexcept { return short_; }

 private:
  std::string content_;
  std::size_t at_ = 1;
  bool short_ = false;
};

/// Collects one frame after the other from a non-blocking socket.
class FrameReader {
 public:
  /// A frame of more than `most` bytes is an error.
  explicit FrameReader(std::size_t most) : most_(most) {}
  enum class State : std::uint8_t { incomplete, complete, closed, broken };
  /// Reads what has arrived, at most to the end of the frame, without waiting.
  [[nodiscard]] State read(const FileDescriptor& socket);
  /// The complete frame. The reader then begins the next one.
  [[nodiscard]] Frame take();

 private:
  [[nodiscard]] State state() const noexcept;
  [[nodiscard]] std::size_t missing() const noexcept;

  std::size_t most_;
  std::string bytes_;
};

/// Waits for one frame of at most `most` bytes. Errors: timeout, unavailable (closed), limit (longer, or empty).
[[nodiscard]] Result<Frame> read_frame(const FileDescriptor& socket, std::size_t most, Clock::time_point deadline);

}  // namespace amldist::world
