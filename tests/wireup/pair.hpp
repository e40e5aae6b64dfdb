// Two connected sockets without a network.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <string>
#include <string_view>

#include "os/file_descriptor.hpp"

namespace amldist::wireup {

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
  /// Whether the near end was closed by whoever has it.
  [[nodiscard]] bool is_closed() const {
    char byte = 0;
    const ssize_t got = ::recv(far.get(), &byte, 1, MSG_PEEK);
    return got == 0 || (got < 0 && errno != EAGAIN);
  }

  FileDescriptor far;   ///< the test's end
  FileDescriptor near;  ///< given away
};

}  // namespace amldist::wireup
