#include "collective/transport/tcp_transport.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "base/text/text.hpp"

namespace amldist::collective {
namespace {

constexpr std::size_t header_bytes = 16;

}  // namespace

TcpTransport::TcpTransport(world::ControlChannel& channel, const world::CommWatch& watch, std::uint64_t id,
                           bool oversubscribed)
    : channel_(channel),
      watch_(watch),
      id_(id),
      interrupted_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      connections_(watch.members().size()),
      codes_(watch.members().size()),
      code_bytes_(channel.integrity() == world::Integrity::off ? 0 : world::message_code_bytes),
      busy_(watch.members().size()),
      oversubscribed_(oversubscribed) {}

std::string_view TcpTransport::name() const noexcept {
  if (channel_.integrity() == world::Integrity::off) return "tcp";
  return channel_.integrity() == world::Integrity::crc ? "tcp with crc" : "tcp with mac";
}

Result<void> TcpTransport::post(const Message& message, Direction direction, std::size_t& left,
                                calls::Watchdog& watchdog) {
  auto& connection = connections_[static_cast<std::size_t>(message.peer)];
  const std::uint32_t peer = watch_.members()[static_cast<std::size_t>(message.peer)];
  if (!connection && channel_.makes_connection_to(peer)) {
    auto made = channel_.make_data_connection(id_, peer, watchdog, message.peer);
    if (!made) return made.error();
    connection = std::move(*made);
  }
  ++left;
  if (direction == Direction::send)
    sends_.push_back({message, &left, {message.signature, message.bytes}, 0, code_bytes_});
  else receives_.push_back({message, &left, {0, 0}, 0, code_bytes_});
  return {};
}

bool TcpTransport::is_connected(int peer) {
  auto& connection = connections_[static_cast<std::size_t>(peer)];
  if (!connection) connection = channel_.take_data_connection(id_, watch_.members()[static_cast<std::size_t>(peer)]);
  return static_cast<bool>(connection);
}

int TcpTransport::awaited() const noexcept {
  if (!receives_.empty()) return receives_.front().message.peer;
  return sends_.empty() ? calls::Watchdog::anyone : sends_.front().message.peer;
}

template <typename Move>
Result<bool> TcpTransport::advance(std::vector<Progress>& list, Move move) {
  bool any = false;
  ++pass_;
  for (Progress& each : list) {
    auto& turn = busy_[static_cast<std::size_t>(each.message.peer)];
    if (turn == pass_) continue;  // an earlier message of the same pair goes first
    if (is_connected(each.message.peer)) {
      const auto moved = move(each);
      if (!moved) return moved.error();
      any = any || *moved;
    }
    if (each.is_done()) --*each.left;
    else turn = pass_;
  }
  std::erase_if(list, [](const Progress& each) { return each.is_done(); });
  return any;
}

Result<bool> TcpTransport::progress(calls::Watchdog& watchdog) {
  const auto sent = advance(sends_, [&](Progress& each) { return push(each, watchdog); });
  if (!sent) return sent.error();
  const auto got = advance(receives_, [&](Progress& each) { return pull(each, watchdog); });
  if (!got) return got.error();
  return *sent || *got;
}

/// One system call for each sleep, however many messages are posted meanwhile.
void TcpTransport::interrupt() noexcept {
  const std::uint64_t one = 1;
  if (is_interrupted_.exchange(true)) return;
  static_cast<void>(::write(interrupted_.get(), &one, sizeof one) == 0);
}

void TcpTransport::give_up() noexcept {
  sends_.clear();
  receives_.clear();
}

/// The kernel could not read or write the program's buffer.
Error TcpTransport::bad_buffer(const Message& message, std::string_view verb) const {
  return {Errc::invalid_argument,
          text::concat({channel_.name_of(watch_.members()[watch_.rank()]), " gave a buffer to ", verb, " of which ",
                        std::to_string(message.bytes), " bytes are not its memory (", std::strerror(EFAULT), ")"})};
}

TcpTransport::Codes& TcpTransport::codes_with(int peer) {
  auto& codes = codes_[static_cast<std::size_t>(peer)];
  if (!codes) {
    const std::uint32_t own = watch_.members()[watch_.rank()];
    const std::uint32_t other = watch_.members()[static_cast<std::size_t>(peer)];
    codes = Codes{channel_.codes_of(id_, own, other), channel_.codes_of(id_, other, own)};
  }
  return *codes;
}

std::size_t TcpTransport::parts_left(Progress& each, iovec* parts) noexcept {
  std::size_t count = 0;
  std::size_t done = each.done;
  const auto add = [&](void* bytes, std::size_t size) {
    if (done < size) parts[count++] = {static_cast<std::byte*>(bytes) + done, size - done};
    done -= std::min(done, size);
  };
  add(each.header, header_bytes);
  if (each.message.is_most && each.done < header_bytes) return count;  // the length is not known yet
  add(each.message.data, each.message.bytes);
  add(each.code.data(), each.code_bytes);
  return count;
}

Result<bool> TcpTransport::push(Progress& send, calls::Watchdog& watchdog) {
  const int socket = connections_[static_cast<std::size_t>(send.message.peer)].get();
  bool any = false;
  if (send.done == 0 && send.code_bytes != 0 && !send.has_code) {
    send.code = codes_with(send.message.peer).of_sent.next(std::as_bytes(std::span(send.header)), send.data());
    send.has_code = true;
  }
  while (!send.is_done()) {
    iovec parts[3] = {};
    const std::size_t count = parts_left(send, parts);
    msghdr whole = {};
    whole.msg_iov = parts;
    whole.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(socket, &whole, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return any;
    if (sent < 0 && errno == EFAULT) return bad_buffer(send.message, "send");
    if (sent < 0) return watchdog.lost(send.message.peer, std::strerror(errno));
    send.done += static_cast<std::size_t>(sent);
    any = true;
  }
  return any;
}

Result<bool> TcpTransport::pull(Progress& receive, calls::Watchdog& watchdog) {
  const int socket = connections_[static_cast<std::size_t>(receive.message.peer)].get();
  bool any = false;
  while (!receive.is_done()) {
    const bool in_header = receive.done < header_bytes;
    iovec parts[3] = {};
    const std::size_t count = parts_left(receive, parts);
    msghdr whole = {};
    whole.msg_iov = parts;
    whole.msg_iovlen = count;
    const ssize_t got = ::recvmsg(socket, &whole, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return any;
    if (got < 0 && errno == EFAULT) return bad_buffer(receive.message, "receive");
    if (got <= 0)
      return watchdog.lost(receive.message.peer, got == 0 ? "it closed the connection" : std::strerror(errno));
    receive.done += static_cast<std::size_t>(got);
    any = true;
    if (!in_header || receive.done < header_bytes) continue;
    const std::uint64_t length = receive.header[1];
    const bool has_length = receive.message.is_most ? length <= receive.message.bytes : length == receive.message.bytes;
    if (receive.header[0] != receive.message.signature || !has_length) return watchdog.differs(receive.message.peer);
    receive.message.bytes = length;
  }
  if (receive.code_bytes != 0) {
    const auto code =
        codes_with(receive.message.peer).of_received.next(std::as_bytes(std::span(receive.header)), receive.data());
    if (code != receive.code) return watchdog.lost(receive.message.peer, "a message from it was changed on the way");
  }
  return any;
}

/// Between ranks that wait for each other a message arrives sooner than a sleeper wakes up, so first it yields: with
/// its own processor the rank polls again at once, otherwise another rank runs. After polling in vain for long, or if
/// the processor did not come back for long, it sleeps: a woken process runs before those that only compute. With fewer
/// processors than ranks it sleeps at once: Linux lets a process yield only to those of its own session or cgroup,
/// and ranks that are reached by TCP are of others.
bool TcpTransport::rest(int idle) {
  if (oversubscribed_) return sleep();
  constexpr auto patience = std::chrono::microseconds(100);
  const auto now = Clock::now();
  if (idle == 1) idle_since_ = now;
  if (now - idle_since_ >= patience) return sleep();
  std::this_thread::yield();
  return false;
}

bool TcpTransport::sleep() {
  std::vector<pollfd> wanted = {{interrupted_.get(), POLLIN, 0}};
  int milliseconds = 10;
  const auto add = [&](const std::vector<Progress>& list, short event) {
    for (const Progress& each : list) {
      const int socket = connections_[static_cast<std::size_t>(each.message.peer)].get();
      if (socket >= 0) wanted.push_back({socket, event, 0});
      else milliseconds = 1;  // no event reports that the peer has made the connection
    }
  };
  add(sends_, POLLOUT);
  add(receives_, POLLIN);
  const bool came = ::poll(wanted.data(), wanted.size(), milliseconds) > 0;
  std::uint64_t interruptions = 0;
  if (came && wanted.front().revents != 0) {
    static_cast<void>(::read(interrupted_.get(), &interruptions, sizeof interruptions) == 0);
    is_interrupted_.exchange(false);  // after that, so that the next interruption is not lost; this thread is awake
  }
  return true;
}

}  // namespace amldist::collective
