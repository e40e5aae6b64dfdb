// Frames of the control connections: a length, a kind, and fields. Everything read here may come from a stranger: a
// reader that runs past the end says so and gives zeros.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

namespace amldist::collective {

/// What a frame says. The first byte after its length.
enum class FrameKind : std::uint8_t {
  join = 1,    ///< to rank 0: here I am
  welcome,     ///< from rank 0: you are at the right place, wait
  refused,     ///< from rank 0: the world does not come about, and why
  table,       ///< from rank 0: everyone's place and address
  hello,       ///< first on a later connection: which rank this is
  hello_data,  ///< the same on a connection that carries a communicator's data
  bye,         ///< the sender leaves in good order
  lost,        ///< from rank 0: a rank's process has ended
  report,      ///< to the coordinator: a call came to its deadline
  query,       ///< from the coordinator: what are you doing?
  status,      ///< the answer
  verdict,     ///< from the coordinator: the communicator is lost, and why
  piece,       ///< to a communicator's rank 0: one rank's piece of a gather_all
  pieces,      ///< from there: all of them
};

inline constexpr std::uint32_t longest_frame = 64U << 20;

/// Builds a frame; take() puts the length in front and ends the writer's use.
class FrameWriter {
 public:
  explicit FrameWriter(FrameKind kind) : content_(4, '\0') { content_.push_back(static_cast<char>(kind)); }
  FrameWriter& number(std::uint64_t value) {
    content_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  FrameWriter& text(std::string_view value) {
    number(value.size());
    content_.append(value);
    return *this;
  }
  [[nodiscard]] std::string take() {
    const auto length = static_cast<std::uint32_t>(content_.size() - 4);
    std::memcpy(content_.data(), &length, sizeof length);
    return std::move(content_);
  }

 private:
  std::string content_;
};

/// A received frame.
class Frame {
 public:
  explicit Frame(std::string content) : content_(std::move(content)) {}
  [[nodiscard]] FrameKind kind() const noexcept {
    return content_.empty() ? FrameKind{} : static_cast<FrameKind>(content_[0]);
  }
  [[nodiscard]] std::uint64_t number() noexcept {
    std::uint64_t value = 0;
    if (content_.size() - at_ < sizeof value) {
      short_ = true;
      return 0;
    }
    std::memcpy(&value, content_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  [[nodiscard]] std::string text() {
    const std::uint64_t length = number();
    if (short_ || content_.size() - at_ < length) {
      short_ = true;
      return {};
    }
    at_ += length;
    return content_.substr(at_ - length, length);
  }
  /// Whether a field was asked for that was not there.
  [[nodiscard]] bool is_short() const noexcept { return short_; }

 private:
  std::string content_;
  std::size_t at_ = 1;
  bool short_ = false;
};

/// Takes the first whole frame off the front of `received`. nullopt: not there yet; `broken` becomes true where the
/// length cannot be one.
[[nodiscard]] inline std::optional<Frame> take_frame(std::string& received, bool& broken) {
  std::uint32_t length = 0;
  if (received.size() < sizeof length) return std::nullopt;
  std::memcpy(&length, received.data(), sizeof length);
  broken = length == 0 || length > longest_frame;
  if (broken || received.size() - sizeof length < length) return std::nullopt;
  Frame frame(received.substr(sizeof length, length));
  received.erase(0, sizeof length + length);
  return frame;
}

}  // namespace amldist::collective
