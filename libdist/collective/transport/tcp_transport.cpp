#include "collective/transport/tcp_transport.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

namespace amldist::collective {
TcpTransport::TcpTransport(world::ControlChannel& channel, const world::CommWatch& watch, std::uint64_t id,
                           bool oversubscribed)
    : channel_(channel),
      watch_(watch),
      id_(id),
      interrupted_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      own_name_(channel.name_of(watch.members()[watch.rank()])),
      oversubscribed_(oversubscribed) {
  const std::size_t code_bytes = channel.integrity() == world::Integrity::off ? 0 : world::message_code_bytes;
  for (std::size_t rank = 0; rank < watch.members().size(); ++rank) streams_.emplace_back(code_bytes);
}

std::string_view TcpTransport::name() const noexcept {
  if (channel_.integrity() == world::Integrity::off) return "tcp";
  return channel_.integrity() == world::Integrity::crc ? "tcp with crc" : "tcp with mac";
}

Result<void> TcpTransport::post(const Message& message, Direction direction, std::size_t& left,
                                calls::Watchdog& watchdog) {
  if (!stream(message.peer).is_open() && channel_.makes_connection_to(member(message.peer))) {
    auto made = channel_.make_data_connection(id_, member(message.peer), watchdog, message.peer);
    if (!made) return made.error();
    open(message.peer, std::move(*made));
  }
  const bool is_first = stream(message.peer).add(message, direction, left, ++posted_);
  if (is_first) (direction == Direction::send ? sending_ : receiving_).push_back(message.peer);
  return {};
}

void TcpTransport::open(int peer, FileDescriptor connection) {
  std::optional<TcpStream::Codes> codes;
  if (channel_.integrity() != world::Integrity::off) {
    const std::uint32_t own = watch_.members()[watch_.rank()];
    codes = {channel_.codes_of(id_, own, member(peer)), channel_.codes_of(id_, member(peer), own)};
  }
  stream(peer).open(std::move(connection), std::move(codes));
}

bool TcpTransport::is_connected(int peer) {
  if (stream(peer).is_open()) return true;
  FileDescriptor connection = channel_.take_data_connection(id_, member(peer));
  if (!connection) return false;
  open(peer, std::move(connection));
  return true;
}

int TcpTransport::awaited() const noexcept {
  const auto direction = receiving_.empty() ? Direction::send : Direction::receive;
  const auto& peers = receiving_.empty() ? sending_ : receiving_;
  const auto oldest = [&](int peer) { return streams_[static_cast<std::size_t>(peer)].oldest(direction); };
  return peers.empty() ? calls::Watchdog::anyone : std::ranges::min(peers, {}, oldest);
}

Result<bool> TcpTransport::advance(std::vector<int>& peers, Direction direction, calls::Watchdog& watchdog) {
  bool any = false;
  for (const int peer : peers) {
    if (!is_connected(peer)) continue;
    const auto moved = stream(peer).move(direction, own_name_, watchdog);
    if (!moved) return moved.error();
    any = any || *moved;
  }
  if (any) std::erase_if(peers, [&](int peer) { return stream(peer).is_idle(direction); });
  return any;
}

Result<bool> TcpTransport::progress(calls::Watchdog& watchdog) {
  const auto sent = advance(sending_, Direction::send, watchdog);
  if (!sent) return sent.error();
  const auto got = advance(receiving_, Direction::receive, watchdog);
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
  for (TcpStream& each : streams_) each.give_up();
  sending_.clear();
  receiving_.clear();
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
  const auto add = [&](const std::vector<int>& peers, short event) {
    for (const int peer : peers) {
      if (stream(peer).is_open()) wanted.push_back({stream(peer).socket(), event, 0});
      else milliseconds = 1;  // no event reports that the peer has made the connection
    }
  };
  add(sending_, POLLOUT);
  add(receiving_, POLLIN);
  const bool came = ::poll(wanted.data(), wanted.size(), milliseconds) > 0;
  std::uint64_t interruptions = 0;
  if (came && wanted.front().revents != 0) {
    static_cast<void>(::read(interrupted_.get(), &interruptions, sizeof interruptions) == 0);
    is_interrupted_.exchange(false);  // after that, so that the next interruption is not lost; this thread is awake
  }
  return true;
}

}  // namespace amldist::collective
