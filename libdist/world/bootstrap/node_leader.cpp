#include "world/bootstrap/node_leader.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <thread>

#include "base/text/hex.hpp"
#include "base/text/text.hpp"

namespace amldist::world {
namespace {

struct Address {
  sockaddr_un bytes = {};
  socklen_t length = 0;
  /// In the kernel's abstract name space: the name begins with a zero.
  explicit Address(const std::string& name) {
    bytes.sun_family = AF_UNIX;
    const std::size_t most = std::min(name.size(), sizeof bytes.sun_path - 1);
    std::memcpy(bytes.sun_path + 1, name.data(), most);
    length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + most);
  }
  [[nodiscard]] const sockaddr* generic() const noexcept { return reinterpret_cast<const sockaddr*>(&bytes); }
};

bool is_of_own_user(const FileDescriptor& connection) noexcept {
  ucred peer = {};
  socklen_t length = sizeof peer;
  return ::getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == ::geteuid();
}

FileDescriptor new_socket() noexcept {
  return FileDescriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

}  // namespace

std::string node_leader_name(const world::Key& key, std::string_view group, std::string_view node) {
  constexpr std::size_t bytes = 16;
  const auto code = key.code_of({"node meeting", std::to_string(::geteuid()), node, group});
  std::string name = "amldist-";
  for (const unsigned char byte : std::span(code).first(bytes)) append_hex(name, byte);
  return name;
}

NodeLeader find_node_leader(const std::string& name, std::chrono::milliseconds patience, Clock::time_point deadline) {
  const Address address(name);
  const auto alone_from = Clock::now() + patience;
  int times_taken = 0;
  for (auto pause = std::chrono::milliseconds(1); Clock::now() < deadline;
       pause = std::min(pause * 2, std::chrono::milliseconds(20))) {
    FileDescriptor socket = new_socket();
    if (!socket) return {};
    if (::connect(socket.get(), address.generic(), address.length) == 0) {
      if (!is_of_own_user(socket)) return {};
      return {FileDescriptor(), std::move(socket)};
    }
    if (errno == ECONNREFUSED && Clock::now() >= alone_from) {
      FileDescriptor listener = new_socket();
      constexpr int backlog = 4096;
      if (!listener) return {};
      if (::bind(listener.get(), address.generic(), address.length) == 0) {
        if (::listen(listener.get(), backlog) != 0) return {};
        return {std::move(listener), FileDescriptor()};
      }
      constexpr int most_times = 50;  // another process was quicker and will listen, or never will
      if (errno != EADDRINUSE || ++times_taken == most_times) return {};
    } else if (errno != ECONNREFUSED && errno != EAGAIN && errno != EINTR) {
      return {};
    }
    std::this_thread::sleep_for(pause);
  }
  return {};
}

FileDescriptor accept_on_node(const FileDescriptor& listener) noexcept {
  for (;;) {
    FileDescriptor connection(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection || is_of_own_user(connection)) return connection;
  }
}

}  // namespace amldist::world
