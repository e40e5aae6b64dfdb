#include "base/net/socket.hpp"

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

#include "base/net/socket_address.hpp"
#include "base/os/descriptor_limit.hpp"
#include "base/text/text.hpp"

namespace amldist {
namespace {

using AddressQuestion = int (*)(int, sockaddr*, socklen_t*);

SocketAddress ask(const FileDescriptor& socket, AddressQuestion question) noexcept {
  SocketAddress out;
  return question(socket.get(), out.generic(), &out.length()) == 0 ? out : SocketAddress();
}

FileDescriptor new_socket(int family) noexcept {
  return FileDescriptor(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
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

Result<FileDescriptor> listen_at(const SocketAddress& address, bool both_families) {
  FileDescriptor socket = new_socket(address.family());
  if (!socket) return system_error("cannot create a socket");
  set_flag(socket, SOL_SOCKET, SO_REUSEADDR);
  const int only = both_families ? 0 : 1;
  if (address.family() == AF_INET6)
    static_cast<void>(::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only));
  constexpr int backlog = 4096;
  if (::bind(socket.get(), address.generic(), address.length()) == 0 && ::listen(socket.get(), backlog) == 0)
    return socket;
  Error error = system_error(text::concat({"cannot listen on port ", std::to_string(address.port())}));
  if (errno == EADDRINUSE) error.code = Errc::mismatch;
  return error;
}

}  // namespace

Result<FileDescriptor> listen_on(std::uint16_t port, const IpAddress& interface) {
  if (!interface.is_unspecified()) return listen_at({interface, port}, false);
  auto listener = listen_at({IpAddress(), port}, true);
  if (listener || listener.error().code != Errc::unavailable) return listener;
  return listen_at({Ipv4{INADDR_ANY}, port}, false);  // the system has no IPv6
}

Result<FileDescriptor> listen_within(const PortRanges& ports, const IpAddress& interface, std::uint16_t taken) {
  if (ports.empty()) return listen_on(0, interface);
  const std::uint32_t count = ports.size();
  const auto first = static_cast<std::uint32_t>(::getpid()) * 7919U;  // processes of one node start at different ports
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint16_t port = ports.at((first + i) % count);
    if (port == taken) continue;
    auto listener = listen_on(port, interface);
    if (listener || listener.error().code != Errc::mismatch) return listener;
  }
  return Error{Errc::mismatch, text::concat({"all ports of ", ports.to_string(), " are in use on this host"})};
}

std::uint16_t local_port(const FileDescriptor& socket) noexcept { return ask(socket, ::getsockname).port(); }

std::vector<IpAddress> own_addresses() {
  std::vector<IpAddress> addresses;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return addresses;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(all, &::freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
      if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != family) continue;
      const IpAddress found = SocketAddress(*each->ifa_addr).address();
      if (!found.is_loopback() && !found.is_link_local()) addresses.push_back(found);
    }
  }
  return addresses;
}

/// connect() on a datagram socket sets its address and sends nothing.
std::optional<IpAddress> source_address_to(const IpAddress& address) noexcept {
  constexpr std::uint16_t discard = 9;
  const SocketAddress to(address, discard);
  const FileDescriptor socket(::socket(to.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket || ::connect(socket.get(), to.generic(), to.length()) != 0) return std::nullopt;
  return own_address(socket);
}

Result<FileDescriptor> start_connection(const IpAddress& address, std::uint16_t port) {
  const SocketAddress to(address, port);
  FileDescriptor socket = new_socket(to.family());
  if (!socket) return system_error("cannot create a socket");
  set_flag(socket, IPPROTO_TCP, TCP_NODELAY);
  if (::connect(socket.get(), to.generic(), to.length()) != 0 && errno != EINPROGRESS) {
    return system_error(text::concat({"cannot connect to ", Endpoint{address.to_string(), port}.to_string()}));
  }
  return socket;
}

Result<FileDescriptor> connect_to(const IpAddress& address, std::uint16_t port, Clock::time_point deadline) {
  auto socket = start_connection(address, port);
  if (!socket) return socket;
  const std::string where = Endpoint{address.to_string(), port}.to_string();
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

IpAddress peer_address(const FileDescriptor& socket) noexcept { return ask(socket, ::getpeername).address(); }

IpAddress own_address(const FileDescriptor& socket) noexcept { return ask(socket, ::getsockname).address(); }

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
      return Error{Errc::timeout, "the peer has stopped reading"};
    }
  }
  return {};
}

}  // namespace amldist
