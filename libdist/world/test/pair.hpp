// Two connected sockets without a network, and a peer that joins over one of them step by step.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/os/file_descriptor.hpp"
#include "world/wireup/handshake.hpp"
#include "world/wireup/limits.hpp"

namespace amldist::world {

struct Pair {
  Pair() {
    std::array<int, 2> both{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both.data()) != 0) return;
    far = FileDescriptor(both[0]);
    near = FileDescriptor(both[1]);
  }
  void send(std::string_view bytes) const {
    static_cast<void>(::send(far.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
  /// The next frame that came; an empty one where none did.
  [[nodiscard]] Frame receive() const {
    if (unread) return *std::exchange(unread, std::nullopt);
    FrameReader reader(limits.join_request_bytes);
    return reader.read(far) == FrameReader::State::complete ? reader.take() : Frame();
  }
  /// A frame that the next receive() returns.
  void put_back(Frame frame) const { unread = std::move(frame); }
  /// Whether the near end was closed by whoever has it.
  [[nodiscard]] bool is_closed() const {
    char byte = 0;
    const ssize_t got = ::recv(far.get(), &byte, 1, MSG_PEEK);
    return got == 0 || (got < 0 && errno != EAGAIN);
  }

  FileDescriptor far;   ///< the test's end
  FileDescriptor near;  ///< given away
  mutable std::optional<Frame> unread;
};

/// The whole content of a frame: kind and fields.
inline Frame content_of(std::string_view frame) { return Frame(std::string(frame.substr(frame_head))); }

/// A secret for tests: the same text gives the same one.
inline Credentials secret_of(std::string_view text) { return {Key::from_secret(text), Trust::authenticated}; }

}  // namespace amldist::world
