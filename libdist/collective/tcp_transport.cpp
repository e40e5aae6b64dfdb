#include "collective/tcp_transport.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace amldist::collective {
namespace {

constexpr std::size_t header_bytes = 16;

}  // namespace

TcpTransport::TcpTransport(ControlChannel& channel, const CommWatch& watch)
    : channel_(channel), watch_(watch), connections_(watch.members().size()), busy_(watch.members().size()) {}

Result<void> TcpTransport::connect(int peer, Vigil& vigil) {
  auto& connection = connections_[static_cast<std::size_t>(peer)];
  if (connection) return {};
  auto made = channel_.data_connection(watch_.id(), watch_.members()[static_cast<std::size_t>(peer)], vigil, peer);
  if (!made) return made.error();
  connection = std::move(*made);
  return {};
}

/// Lowest peer first on every rank: connections between several ranks cannot wait for one another in a circle.
Result<void> TcpTransport::connect_all(Vigil& vigil) {
  std::vector<int> peers;
  for (const auto* list : {&sends_, &receives_}) {
    for (const Progress& each : *list) peers.push_back(each.message.peer);
  }
  std::ranges::sort(peers);
  for (const int peer : peers) {
    if (auto connected = connect(peer, vigil); !connected) return connected;
  }
  return {};
}

Result<void> TcpTransport::exchange(std::span<const Message> sends, std::span<const Message> receives, Vigil& vigil) {
  sends_.clear();
  receives_.clear();
  for (const Message& message : sends) sends_.push_back({message, {message.signature, message.bytes}, 0});
  for (const Message& message : receives) receives_.push_back({message, {0, 0}, 0});
  if (auto connected = connect_all(vigil); !connected) return connected;
  while (!sends_.empty() || !receives_.empty()) {
    const auto moved = progress(vigil);
    if (!moved) return moved.error();
    if (*moved || (sends_.empty() && receives_.empty())) continue;
    wait_a_little();
    const int peer = receives_.empty() ? sends_.front().message.peer : receives_.front().message.peer;
    if (auto going_on = vigil.keep_waiting(peer); !going_on) return going_on;
  }
  return {};
}

Result<bool> TcpTransport::progress(Vigil& vigil) {
  bool any = false;
  const auto advance = [&](std::vector<Progress>& list, auto move) -> Result<void> {
    ++pass_;
    for (Progress& each : list) {
      auto& turn = busy_[static_cast<std::size_t>(each.message.peer)];
      if (turn == pass_) continue;  // behind an earlier message of the same pair
      const auto moved = move(each);
      if (!moved) return moved.error();
      any = any || *moved;
      if (!each.is_done()) turn = pass_;
    }
    std::erase_if(list, [](const Progress& each) { return each.is_done(); });
    return {};
  };
  if (auto sent = advance(sends_, [&](Progress& each) { return push(each, vigil); }); !sent) return sent.error();
  if (auto got = advance(receives_, [&](Progress& each) { return pull(each, vigil); }); !got) return got.error();
  return any;
}

Result<bool> TcpTransport::push(Progress& send, Vigil& vigil) {
  const int socket = connections_[static_cast<std::size_t>(send.message.peer)].get();
  bool any = false;
  while (!send.is_done()) {
    iovec parts[2] = {};
    int count = 0;
    if (send.done < header_bytes) {
      parts[count++] = {reinterpret_cast<std::byte*>(send.header) + send.done, header_bytes - send.done};
    }
    const std::size_t sent_body = send.done < header_bytes ? 0 : send.done - header_bytes;
    if (send.message.bytes > sent_body)
      parts[count++] = {send.message.data + sent_body, send.message.bytes - sent_body};
    msghdr whole = {};
    whole.msg_iov = parts;
    whole.msg_iovlen = static_cast<std::size_t>(count);
    const ssize_t sent = ::sendmsg(socket, &whole, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return any;
    if (sent < 0) return vigil.lost(send.message.peer, std::strerror(errno));
    send.done += static_cast<std::size_t>(sent);
    any = true;
  }
  return any;
}

Result<bool> TcpTransport::pull(Progress& receive, Vigil& vigil) {
  const int socket = connections_[static_cast<std::size_t>(receive.message.peer)].get();
  bool any = false;
  while (!receive.is_done()) {
    const bool in_header = receive.done < header_bytes;
    std::byte* const to = in_header ? reinterpret_cast<std::byte*>(receive.header) + receive.done
                                    : receive.message.data + (receive.done - header_bytes);
    const std::size_t most =
        in_header ? header_bytes - receive.done : receive.message.bytes - (receive.done - header_bytes);
    const ssize_t got = ::recv(socket, to, most, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return any;
    if (got <= 0) return vigil.lost(receive.message.peer, got == 0 ? "it closed the connection" : std::strerror(errno));
    receive.done += static_cast<std::size_t>(got);
    any = true;
    const bool expected = receive.header[0] == receive.message.signature && receive.header[1] == receive.message.bytes;
    if (in_header && receive.done == header_bytes && !expected) return vigil.differs(receive.message.peer);
  }
  return any;
}

void TcpTransport::wait_a_little() {
  std::vector<pollfd> wanted;
  const auto add = [&](const std::vector<Progress>& list, short event) {
    for (const Progress& each : list) {
      wanted.push_back({connections_[static_cast<std::size_t>(each.message.peer)].get(), event, 0});
    }
  };
  add(sends_, POLLOUT);
  add(receives_, POLLIN);
  constexpr int milliseconds = 10;
  static_cast<void>(::poll(wanted.data(), wanted.size(), milliseconds));
}

}  // namespace amldist::collective
