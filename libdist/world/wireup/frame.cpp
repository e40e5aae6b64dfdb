#include "world/wireup/frame.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/net/socket.hpp"

namespace amldist::world {
namespace {

void append_little_endian(std::string& out, std::uint64_t value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

std::uint64_t little_endian(std::string_view bytes) noexcept {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

std::size_t length_of(std::string_view bytes) noexcept {
  return static_cast<std::size_t>(little_endian(bytes.substr(0, frame_head)));
}

}  // namespace

FrameWriter& FrameWriter::number(std::uint64_t value) {
  append_little_endian(content_, value, sizeof value);
  return *this;
}

FrameWriter& FrameWriter::text(std::string_view value) {
  number(value.size());
  content_ += value;
  return *this;
}

std::string FrameWriter::take() {
  std::string head;
  append_little_endian(head, content_.size() - frame_head, frame_head);
  content_.replace(0, frame_head, head);
  return std::move(content_);
}

std::uint64_t Frame::number() noexcept {
  constexpr std::size_t bytes = sizeof(std::uint64_t);
  if (short_ || at_ > content_.size() || content_.size() - at_ < bytes) {
    short_ = true;
    return 0;
  }
  at_ += bytes;
  return little_endian(std::string_view(content_).substr(at_ - bytes, bytes));
}

std::string Frame::text() {
  const std::uint64_t length = number();
  if (short_ || content_.size() - at_ < length) {
    short_ = true;
    return {};
  }
  at_ += length;
  return content_.substr(at_ - length, length);
}

FrameReader::State FrameReader::state() const noexcept {
  if (bytes_.size() < frame_head) return State::incomplete;
  const std::size_t length = length_of(bytes_);
  if (length == 0 || length > most_) return State::broken;
  return bytes_.size() == frame_head + length ? State::complete : State::incomplete;
}

std::size_t FrameReader::missing() const noexcept {
  const std::size_t whole = bytes_.size() < frame_head ? frame_head : frame_head + length_of(bytes_);
  return whole - bytes_.size();
}

FrameReader::State FrameReader::read(const FileDescriptor& socket) {
  std::array<char, 16384> piece;  // NOLINT(cppcoreguidelines-pro-type-member-init): recv fills it
  while (state() == State::incomplete) {
    const ssize_t got = ::recv(socket.get(), piece.data(), std::min(piece.size(), missing()), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return State::incomplete;
    if (got <= 0) return State::closed;
    bytes_.append(piece.data(), static_cast<std::size_t>(got));
  }
  return state();
}

Frame FrameReader::take() {
  Frame frame(bytes_.substr(frame_head));
  bytes_.clear();
  return frame;
}

Result<Frame> read_frame(const FileDescriptor& socket, std::size_t most, Clock::time_point deadline) {
  for (FrameReader reader(most);;) {
    switch (reader.read(socket)) {
      case FrameReader::State::complete:
        return reader.take();
      case FrameReader::State::closed:
        return Error{Errc::unavailable, "the connection was closed"};
      case FrameReader::State::broken:
        return Error{Errc::limit, "the peer sent something that is not a message of this release of aml-dist"};
      case FrameReader::State::incomplete:
        break;
    }
    if (!wait_until_ready(socket, Readiness::read, deadline))
      return Error{Errc::timeout, "the peer did not answer in time"};
  }
}

}  // namespace amldist::world
