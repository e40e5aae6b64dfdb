#include "fabric/frames.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "core/text.hpp"

namespace amldist::fabric {
namespace {

constexpr std::size_t head_size = 4;

std::size_t length_of(std::string_view head) {
  std::size_t length = 0;
  for (const char c : head.substr(0, head_size)) length = length << 8 | static_cast<unsigned char>(c);
  return length;
}

Error too_late() { return {Errc::unavailable, "no answer in time"}; }
Error closed() { return {Errc::unavailable, "the connection was closed"}; }

/// Waits for the socket; an error when the deadline passes.
Result<void> wait_for(int socket, short events, Deadline deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    if (left <= 0) return too_late();
    pollfd wanted = {socket, events, 0};
    const int ready = ::poll(&wanted, 1, static_cast<int>(left));
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return Error{Errc::unavailable, std::strerror(errno)};
  }
}

}  // namespace

std::string frame(std::string_view text) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(text.size() >> shift & 0xff);
  out += text;
  return out;
}

Result<void> write_all(int socket, std::string_view bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t written = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (auto ready = wait_for(socket, POLLOUT, deadline); !ready) return ready;
    } else if (errno != EINTR) {
      return Error{Errc::unavailable, std::strerror(errno)};
    }
  }
  return {};
}

FrameReader::State FrameReader::state() const {
  if (bytes_.size() < head_size) return State::incomplete;
  const std::size_t length = length_of(bytes_);
  if (length > most_) return State::too_long;
  return bytes_.size() >= head_size + length ? State::complete : State::incomplete;
}

std::size_t FrameReader::missing() const {
  if (bytes_.size() < head_size) return head_size - bytes_.size();
  return head_size + length_of(bytes_) - bytes_.size();
}

FrameReader::State FrameReader::read(int socket) {
  std::array<char, 16384> buffer{};
  while (state() == State::incomplete) {
    // Never beyond this frame: what follows may be for another reader.
    const std::size_t wanted = std::min(buffer.size(), missing());
    const ssize_t got = ::recv(socket, buffer.data(), wanted, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return State::incomplete;
    if (got <= 0) return State::closed;
    bytes_.append(buffer.data(), static_cast<std::size_t>(got));
  }
  return state();
}

std::string FrameReader::take() {
  const std::size_t length = length_of(bytes_);
  std::string text = bytes_.substr(head_size, length);
  bytes_.erase(0, head_size + length);
  return text;
}

Result<std::string> read_frame(int socket, std::size_t most, Deadline deadline) {
  FrameReader reader(most);
  for (;;) {
    switch (reader.read(socket)) {
      case FrameReader::State::complete:
        return reader.take();
      case FrameReader::State::closed:
        return closed();
      case FrameReader::State::too_long:
        return Error{Errc::limit, "a frame is too long"};
      case FrameReader::State::incomplete:
        break;
    }
    if (auto ready = wait_for(socket, POLLIN, deadline); !ready) return ready.error();
  }
}

}  // namespace amldist::fabric
