#include "collective/transport/node_transport.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "collective/node/relax.hpp"

namespace amldist::collective {
namespace {

/// Part size: the other end continues while this one copies the next part.
constexpr std::size_t together = 16UL << 10;
constexpr std::string_view damaged = "the ring in shared memory is damaged";

std::uint64_t random_key() noexcept {
  std::uint64_t key = 0;
  static_cast<void>(::getrandom(&key, sizeof key, 0) == 0);
  return key | 1;
}

}  // namespace

std::size_t NodeTransport::memory_bytes(std::uint32_t ranks) noexcept {
  return static_cast<std::size_t>(ranks) * ranks * sizeof(MessageRing);
}

NodeTransport::NodeTransport(std::unique_ptr<Transport> others, std::byte* memory, const NodeGroup& place,
                             bool oversubscribed)
    : others_(std::move(others)),
      ranks_(place.communicator_ranks),
      own_(place.rank),
      oversubscribed_(oversubscribed),
      interrupted_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  auto* const rings = reinterpret_cast<MessageRing*>(memory);  // by sender, then by receiver
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    neighbours_.push_back(
        {RingWriter(rings[own_ * ranks_.size() + i], random_key()), RingReader(rings[i * ranks_.size() + own_]), 0});
  }
}

std::span<std::byte> NodeTransport::Progress::data(std::size_t bytes) const noexcept {
  const std::size_t in_header = done < header() ? header() - done : 0;
  return {message.data + (done + in_header - header()), bytes - in_header};
}

Result<void> NodeTransport::post(const Message& message, Direction direction, std::size_t& left, Watchdog& watchdog) {
  const auto found = std::ranges::lower_bound(ranks_, message.peer);
  const auto index = static_cast<std::size_t>(found - ranks_.begin());
  if (found == ranks_.end() || *found != message.peer || index == own_) {
    others_are_idle_ = false;
    return others_->post(message, direction, left, watchdog);
  }
  (direction == Direction::send ? sends_ : receives_).push_back({message, &left, index, 0});
  ++left;
  is_new_ = true;
  return {};
}

template <typename Move>
Result<bool> NodeTransport::advance(std::vector<Progress>& list, Move move) {
  bool any = false;
  ++pass_;
  for (Progress& each : list) {
    auto& turn = neighbours_[each.neighbour].busy;
    if (turn == pass_) continue;  // an earlier message of the same pair goes first
    const auto moved = move(each);
    if (!moved) return moved.error();
    any = any || *moved;
    if (each.remaining() == 0) --*each.left;
    else turn = pass_;
  }
  if (any) std::erase_if(list, [](const Progress& each) { return each.remaining() == 0; });
  return any;
}

Result<bool> NodeTransport::progress(Watchdog& watchdog) {
  const auto sent = advance(sends_, [&](Progress& each) { return push(each, watchdog); });
  if (!sent) return sent.error();
  const auto got = advance(receives_, [&](Progress& each) { return pull(each, watchdog); });
  if (!got) return got.error();
  if (others_are_idle_) return *sent || *got;
  const auto moved = others_->progress(watchdog);
  if (!moved) return moved.error();
  others_are_idle_ = others_->awaited() == Watchdog::anyone;
  return *sent || *got || *moved;
}

/// Moves at most one ring's capacity, so that other messages and the other direction get their turn.
Result<bool> NodeTransport::push(Progress& send, Watchdog& watchdog) {
  RingWriter& ring = neighbours_[send.neighbour].to;
  std::size_t moved = 0;
  while (send.remaining() != 0 && moved < MessageRing::capacity) {
    const std::size_t wanted = std::min(send.remaining(), together);
    const auto fits = ring.room(wanted);
    if (!fits) return watchdog.lost(send.message.peer, damaged);
    const std::size_t bytes = std::min(wanted, *fits);
    if (bytes == 0) break;
    if (send.done == 0) {
      const std::uint64_t length = send.message.bytes;
      ring.begin_message(send.message.signature, bytes == wanted);
      ring.put(std::as_bytes(std::span(&length, 1)));
      if (send.header() == MessageRing::line) ring.end_line();
    }
    ring.put(send.data(bytes));
    ring.publish();
    send.done += bytes;
    moved += bytes;
  }
  return moved != 0;
}

bool NodeTransport::is_expected(RingReader& ring, const Message& message) noexcept {
  const auto signature = ring.take_word();
  std::uint64_t length = 0;
  ring.take(std::as_writable_bytes(std::span(&length, 1)));
  if (header_bytes(message.bytes) == MessageRing::line) ring.end_line();
  return signature == message.signature && length == message.bytes;
}

Result<bool> NodeTransport::pull(Progress& receive, Watchdog& watchdog) {
  RingReader& ring = neighbours_[receive.neighbour].from;
  std::size_t moved = 0;
  while (receive.remaining() != 0 && moved < MessageRing::capacity) {
    const std::size_t wanted = std::min(receive.remaining(), together);
    const bool begins = receive.done == 0;
    const auto available =
        begins && ring.is_announced(receive.message.signature) ? std::optional(wanted) : ring.available(wanted);
    if (!available) return watchdog.lost(receive.message.peer, damaged);
    const std::size_t bytes = std::min(wanted, *available);
    if (bytes == 0) break;
    // At least one cache line is available, and a header is shorter.
    if (begins && !is_expected(ring, receive.message)) return watchdog.differs(receive.message.peer);
    ring.take(receive.data(bytes));
    ring.release();
    receive.done += bytes;
    moved += bytes;
  }
  return moved != 0;
}

int NodeTransport::awaited() const noexcept {
  if (!receives_.empty()) return receives_.front().message.peer;
  if (const int other = others_->awaited(); other != Watchdog::anyone) return other;
  return sends_.empty() ? Watchdog::anyone : sends_.front().message.peer;
}

/// A socket reports the death of its peer; a ring does not. So the watchdog is asked about each peer.
Result<void> NodeTransport::keep_waiting(Watchdog& watchdog) {
  if (auto going_on = watchdog.keep_waiting(awaited()); !going_on) return going_on;
  for (const auto* list : {&receives_, &sends_}) {
    ++pass_;
    // NOLINTNEXTLINE(modernize-loop-convert): the watchdog may post messages, which makes the list longer
    for (std::size_t i = 0; i < list->size(); ++i) {
      const Progress& each = (*list)[i];
      if (std::exchange(neighbours_[each.neighbour].busy, pass_) == pass_) continue;
      if (auto going_on = watchdog.keep_waiting(each.message.peer); !going_on) return going_on;
    }
  }
  return {};
}

/// With a processor per rank it polls for a few microseconds, then yields, and after a long wait naps. No process needs
/// to be woken, so sending stays cheap. Messages from other nodes wait until the nap ends.
bool NodeTransport::rest(int idle) {
  constexpr int spins = 256;
  constexpr auto patience = std::chrono::microseconds(500);
  if (is_idle()) return others_->rest(idle);
  const int polls = oversubscribed_ ? 1 : spins;
  if (idle < polls) {
    if (idle < polls / 2) relax_briefly();
    else relax();
    return false;
  }
  const auto now = Clock::now();
  if (std::exchange(is_new_, false) || idle == polls) idle_since_ = now;
  const auto waited = now - idle_since_;
  if (waited < patience) {
    std::this_thread::yield();
    return false;
  }
  nap(waited);
  return true;
}

/// The nap is a small part of the time waited so far, so that it adds little to it.
void NodeTransport::nap(Clock::duration waited) {
  constexpr auto longest = std::chrono::nanoseconds(std::chrono::milliseconds(2));
  const auto length = std::min<std::chrono::nanoseconds>(waited / 16, longest);
  const timespec limit = {0, static_cast<long>(length.count())};
  pollfd wanted = {interrupted_.get(), POLLIN, 0};
  naps_.store(true);
  if (::ppoll(&wanted, 1, &limit, nullptr) > 0) {
    std::uint64_t interruptions = 0;
    static_cast<void>(::read(interrupted_.get(), &interruptions, sizeof interruptions) == 0);
  }
  naps_.store(false);
}

void NodeTransport::interrupt() noexcept {
  const std::uint64_t one = 1;
  if (naps_.load()) static_cast<void>(::write(interrupted_.get(), &one, sizeof one) == 0);
  others_->interrupt();
}

void NodeTransport::give_up() noexcept {
  sends_.clear();
  receives_.clear();
  others_->give_up();
}

}  // namespace amldist::collective
