#include "base/net/datagram_socket.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>
#include <utility>

#include "base/net/socket_address.hpp"

namespace amldist {
namespace {

FileDescriptor udp_socket(int family) noexcept {
  return FileDescriptor(::socket(family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

}  // namespace

DatagramSocket::DatagramSocket(FileDescriptor socket, bool is_ipv6) noexcept
    : socket_(std::move(socket)), is_ipv6_(is_ipv6) {}

DatagramSocket DatagramSocket::towards(const IpAddress& peer) noexcept {
  const bool is_ipv6 = !peer.as_ipv4();
  return {udp_socket(is_ipv6 ? AF_INET6 : AF_INET), is_ipv6};
}

DatagramSocket DatagramSocket::for_all() noexcept {
  FileDescriptor both = udp_socket(AF_INET6);
  constexpr int off = 0;  // a system's default may be IPv6 alone
  if (both && ::setsockopt(both.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off) == 0)
    return {std::move(both), true};
  return {udp_socket(AF_INET), false};
}

bool DatagramSocket::bind(std::uint16_t port) const noexcept {
  const SocketAddress all = is_ipv6_ ? SocketAddress(IpAddress(), port) : SocketAddress(Ipv4{INADDR_ANY}, port);
  return ::bind(socket_.get(), all.generic(), all.length()) == 0;
}

std::uint16_t DatagramSocket::port() const noexcept {
  SocketAddress own;
  return ::getsockname(socket_.get(), own.generic(), &own.length()) == 0 ? own.port() : std::uint16_t{0};
}

bool DatagramSocket::send(std::string_view bytes, const DatagramPlace& to) const noexcept {
  const SocketAddress place =
      is_ipv6_ ? SocketAddress::of_ipv6(to.address, to.port) : SocketAddress(to.address, to.port);
  return ::sendto(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL, place.generic(),
                  place.length()) >= 0;
}

std::optional<std::size_t> DatagramSocket::receive(std::span<char> buffer, DatagramPlace& from) const noexcept {
  SocketAddress sender;
  const ssize_t got =
      ::recvfrom(socket_.get(), buffer.data(), buffer.size(), MSG_DONTWAIT, sender.generic(), &sender.length());
  if (got < 0) return std::nullopt;
  from = {sender.address(), sender.port()};
  return static_cast<std::size_t>(got);
}

}  // namespace amldist
