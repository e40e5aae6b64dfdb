#include "os/socket.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "core/text.hpp"
#include "os/descriptor_limit.hpp"

namespace amldist {
namespace {

// The C interface takes a pointer to the family of address structures.
const sockaddr* generic(const sockaddr_in& address) noexcept { return reinterpret_cast<const sockaddr*>(&address); }
sockaddr* generic(sockaddr_in& address) noexcept { return reinterpret_cast<sockaddr*>(&address); }

FileDescriptor new_socket() noexcept {
  return FileDescriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

void set_flag(const FileDescriptor& socket, int level, int option) noexcept {
  const int on = 1;
  static_cast<void>(::setsockopt(socket.get(), level, option, &on, sizeof on));
}

int milliseconds_until(Clock::time_point deadline) noexcept {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left + 1, 0, 1'000'000));
}

Error system_error(std::string_view what) {
  const int problem = errno;
  const Errc code = problem == EMFILE || problem == ENFILE ? Errc::limit : Errc::unavailable;
  return {code, text::concat({what, ": ", reason_of_errno(problem)})};
}

}  // namespace

sockaddr_in socket_address(Ipv4 address, std::uint16_t port) noexcept {
  sockaddr_in out = {};
  out.sin_family = AF_INET;
  out.sin_port = htons(port);
  out.sin_addr.s_addr = htonl(address.bits);
  return out;
}

Result<FileDescriptor> listen_on(std::uint16_t port, Ipv4 interface) {
  FileDescriptor socket = new_socket();
  if (!socket) return system_error("no socket");
  set_flag(socket, SOL_SOCKET, SO_REUSEADDR);
  const sockaddr_in address = socket_address(interface, port);
  constexpr int backlog = 4096;
  if (::bind(socket.get(), generic(address), sizeof address) == 0 && ::listen(socket.get(), backlog) == 0)
    return socket;
  Error error = system_error(text::concat({"cannot listen on port ", std::to_string(port)}));
  if (errno == EADDRINUSE) error.code = Errc::mismatch;
  return error;
}

Result<FileDescriptor> listen_within(const PortRanges& ports, Ipv4 interface, std::uint16_t taken) {
  if (ports.empty()) return listen_on(0, interface);
  const std::uint32_t count = ports.size();
  const auto first = static_cast<std::uint32_t>(::getpid()) * 7919U;  // processes of one node begin at different ports
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint16_t port = ports.at((first + i) % count);
    if (port == taken) continue;
    auto listener = listen_on(port, interface);
    if (listener || listener.error().code != Errc::mismatch) return listener;
  }
  return Error{Errc::mismatch, text::concat({"all ports of ", ports.to_string(), " are in use on this host"})};
}

std::uint16_t local_port(const FileDescriptor& socket) noexcept {
  sockaddr_in address = {};
  socklen_t length = sizeof address;
  return ::getsockname(socket.get(), generic(address), &length) == 0 ? ntohs(address.sin_port) : std::uint16_t{0};
}

std::vector<Ipv4> own_addresses() {
  std::vector<Ipv4> addresses;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return addresses;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(all, &::freeifaddrs);
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    sockaddr_in address = {};
    std::memcpy(&address, each->ifa_addr, sizeof address);
    const Ipv4 found{ntohl(address.sin_addr.s_addr)};
    if (!found.is_loopback()) addresses.push_back(found);
  }
  return addresses;
}

/// A datagram socket that is connected has an address, and nothing is sent.
std::optional<Ipv4> source_address_to(Ipv4 address) noexcept {
  const FileDescriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  constexpr std::uint16_t discard = 9;
  const sockaddr_in to = socket_address(address, discard);
  if (!socket || ::connect(socket.get(), generic(to), sizeof to) != 0) return std::nullopt;
  return own_address(socket);
}

Result<FileDescriptor> start_connection(Ipv4 address, std::uint16_t port) {
  FileDescriptor socket = new_socket();
  if (!socket) return system_error("no socket");
  set_flag(socket, IPPROTO_TCP, TCP_NODELAY);
  const sockaddr_in to = socket_address(address, port);
  if (::connect(socket.get(), generic(to), sizeof to) != 0 && errno != EINPROGRESS) {
    return system_error(text::concat({"cannot connect to ", address.to_string(), ":", std::to_string(port)}));
  }
  return socket;
}

Result<FileDescriptor> connect_to(Ipv4 address, std::uint16_t port, Clock::time_point deadline) {
  auto socket = start_connection(address, port);
  if (!socket) return socket;
  const std::string where = text::concat({address.to_string(), ":", std::to_string(port)});
  if (!wait_until_ready(*socket, Readiness::write, deadline)) {
    return Error{Errc::timeout, text::concat({"no answer from ", where})};
  }
  int problem = 0;
  socklen_t length = sizeof problem;
  static_cast<void>(::getsockopt(socket->get(), SOL_SOCKET, SO_ERROR, &problem, &length));
  if (problem == 0) return socket;
  return Error{Errc::unavailable, text::concat({"cannot connect to ", where, ": ", std::strerror(problem)})};
}

FileDescriptor accept_on(const FileDescriptor& listener) noexcept {
  FileDescriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket) set_flag(socket, IPPROTO_TCP, TCP_NODELAY);
  return socket;
}

Ipv4 peer_address(const FileDescriptor& socket) noexcept {
  sockaddr_in address = {};
  socklen_t length = sizeof address;
  static_cast<void>(::getpeername(socket.get(), generic(address), &length));
  return Ipv4{ntohl(address.sin_addr.s_addr)};
}

Ipv4 own_address(const FileDescriptor& socket) noexcept {
  sockaddr_in address = {};
  socklen_t length = sizeof address;
  static_cast<void>(::getsockname(socket.get(), generic(address), &length));
  return Ipv4{ntohl(address.sin_addr.s_addr)};
}

bool wait_until_ready(const FileDescriptor& socket, Readiness what, Clock::time_point deadline) noexcept {
  pollfd one = {socket.get(), static_cast<short>(what == Readiness::read ? POLLIN : POLLOUT), 0};
  for (;;) {
    const int ready = ::poll(&one, 1, milliseconds_until(deadline));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

Result<void> send_all(const FileDescriptor& socket, std::string_view bytes, Clock::time_point deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
      continue;
    }
    if (errno != EAGAIN && errno != EINTR) return system_error("the connection broke");
    if (!wait_until_ready(socket, Readiness::write, deadline)) {
      return Error{Errc::timeout, "the peer does not read what it is sent"};
    }
  }
  return {};
}

}  // namespace amldist
