#include "collective/transport/node_transport.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "collective/node/channel/relax.hpp"

namespace amldist::collective {
namespace {

/// Part size: the other end continues while this one copies the next part.
constexpr std::size_t together = 16UL << 10;
/// Bytes of a fetched message that are copied at once: other messages and the watchdog get their turn in between.
constexpr std::size_t fetched_at_once = 1UL << 20;
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
                             bool oversubscribed, const PeerMemory* peers)
    : others_(std::move(others)),
      ranks_(place.communicator_ranks),
      own_(place.rank),
      host_(place.host),
      peers_(peers),
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

Result<void> NodeTransport::post(const Message& message, Direction direction, std::size_t& left,
                                 calls::Watchdog& watchdog) {
  const auto found = std::ranges::lower_bound(ranks_, message.peer);
  const auto index = static_cast<std::size_t>(found - ranks_.begin());
  if (found == ranks_.end() || *found != message.peer || index == own_) {
    others_are_idle_ = false;
    return others_->post(message, direction, left, watchdog);
  }
  const bool is_offered =
      direction == Direction::send && may_be_fetched(message) && neighbours_[index].to.offers(message.bytes);
  (direction == Direction::send ? sends_ : receives_).push_back({message, &left, index, 0, is_offered});
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

Result<bool> NodeTransport::progress(calls::Watchdog& watchdog) {
  const auto sent = advance(sends_, [&](Progress& each) { return push(each, watchdog); });
  if (!sent) return sent.error();
  const auto got = advance(receives_, [&](Progress& each) { return pull(each, watchdog); });
  if (!got) return got.error();
  if (others_are_idle_) return *sent || *got;
  const auto moved = others_->progress(watchdog);
  if (!moved) return moved.error();
  others_are_idle_ = others_->awaited() == calls::Watchdog::anyone;
  return *sent || *got || *moved;
}

/// Shows where the data is, once; then waits until the receiver has it.
Result<bool> NodeTransport::offer(Progress& send, calls::Watchdog& watchdog) {
  RingWriter& ring = neighbours_[send.neighbour].to;
  if (send.done == 0) {
    const auto fits = ring.room(MessageRing::line);
    if (!fits) return watchdog.lost(send.message.peer, damaged);
    if (*fits == 0) return false;
    const std::uint64_t contents[] = {send.message.bytes, reinterpret_cast<std::uintptr_t>(send.message.data)};
    ring.begin_message({send.message.signature, true, true});
    ring.put(std::as_bytes(std::span(contents)));
    ring.publish();
    send.done = send.header();
    return true;
  }
  const auto fetched = ring.is_fetched();
  if (!fetched) return watchdog.lost(send.message.peer, damaged);
  if (*fetched) send.done += send.remaining();
  return *fetched;
}

/// Moves at most one ring's capacity, so that other messages and the other direction get their turn.
Result<bool> NodeTransport::push(Progress& send, calls::Watchdog& watchdog) {
  if (send.is_offered) return offer(send, watchdog);
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
      ring.begin_message({send.message.signature, false, bytes == wanted});
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

Result<bool> NodeTransport::take_header(Progress& receive, calls::Watchdog& watchdog) {
  RingReader& ring = neighbours_[receive.neighbour].from;
  const std::uint64_t begins = ring.position();
  const bool is_announced = ring.is_announced(receive.message.signature);
  if (!is_announced) {
    const auto available = ring.available(MessageRing::line);
    if (!available) return watchdog.lost(receive.message.peer, damaged);
    if (*available == 0) return false;
  }
  const auto start = ring.take_word();
  std::uint64_t length = 0;
  ring.take(std::as_writable_bytes(std::span(&length, 1)));
  const bool is_expected = start && start->signature == receive.message.signature && length == receive.message.bytes &&
                           (!start->is_offered || peers_ != nullptr);
  if (!is_expected) return watchdog.differs(receive.message.peer);
  receive.is_offered = start->is_offered;
  const std::size_t first_part = receive.is_offered ? MessageRing::line : std::min(receive.remaining(), together);
  if (is_announced) ring.known(begins, first_part);
  if (receive.is_offered) ring.take(std::as_writable_bytes(std::span(&receive.from, 1)));
  if (receive.is_offered) ring.release();
  else if (receive.header() == MessageRing::line) ring.end_line();
  receive.done = receive.header();
  if (may_be_fetched(receive.message)) receive.begun = Clock::now();
  return true;
}

/// The header comes when the sender has copied the first part; the other parts are copied at both ends at once. A
/// message that the ring holds may have been copied before this rank looked, so its first part is counted, too.
void NodeTransport::end_timing(const Progress& receive) {
  const std::size_t bytes = receive.message.bytes;
  auto took = Clock::now() - receive.begun;
  if (bytes <= MessageRing::capacity && !receive.is_offered)
    took += took * static_cast<long>(std::min(together, bytes)) / static_cast<long>(bytes);
  neighbours_[receive.neighbour].from.note(bytes, receive.is_offered, took);
}

/// Receives in a single copy.
Result<bool> NodeTransport::fetch(Progress& receive, calls::Watchdog& watchdog) {
  RingReader& ring = neighbours_[receive.neighbour].from;
  const std::size_t bytes = std::min(receive.remaining(), fetched_at_once);
  const std::size_t at = receive.done - receive.header();
  const auto read = peers_->read(receive.neighbour, receive.message.data + at, receive.from + at, bytes);
  if (!read) return why_not_fetched(receive, bytes, read.error(), watchdog);
  if (ring.has_given_up()) return watchdog.lost(receive.message.peer, "it has given up the call");
  receive.done += bytes;
  if (receive.remaining() == 0) ring.finish_fetching();
  return true;
}

/// A bad buffer of this rank ends its process, as copying to it would.
Error NodeTransport::why_not_fetched(const Progress& receive, std::size_t bytes, const Error& error,
                                     calls::Watchdog& watchdog) const {
  if (error.code != Errc::invalid_argument) return watchdog.lost(receive.message.peer, error.message);
  write_to_each_page(receive.message.data + (receive.done - receive.header()), bytes);
  return bad_buffer_of(receive.message.peer, host_, bytes, error.message);
}

/// Receives from the ring.
Result<bool> NodeTransport::stream(Progress& receive, calls::Watchdog& watchdog) {
  RingReader& ring = neighbours_[receive.neighbour].from;
  std::size_t moved = 0;
  while (receive.remaining() != 0 && moved < MessageRing::capacity) {
    const std::size_t wanted = std::min(receive.remaining(), together);
    const auto available = ring.available(wanted);
    if (!available) return watchdog.lost(receive.message.peer, damaged);
    const std::size_t bytes = std::min(wanted, *available);
    if (bytes == 0) break;
    ring.take(receive.data(bytes));
    ring.release();
    receive.done += bytes;
    moved += bytes;
  }
  return moved != 0;
}

Result<bool> NodeTransport::pull(Progress& receive, calls::Watchdog& watchdog) {
  bool moved = false;
  if (receive.done == 0) {
    auto begun = take_header(receive, watchdog);
    if (!begun || !*begun) return begun;
    moved = true;
    if (receive.remaining() == 0) neighbours_[receive.neighbour].from.release();
  }
  auto more = receive.is_offered ? fetch(receive, watchdog) : stream(receive, watchdog);
  if (!more) return more;
  if (receive.remaining() == 0 && may_be_fetched(receive.message)) end_timing(receive);
  return moved || *more;
}

int NodeTransport::awaited() const noexcept {
  if (!receives_.empty()) return receives_.front().message.peer;
  if (const int other = others_->awaited(); other != calls::Watchdog::anyone) return other;
  return sends_.empty() ? calls::Watchdog::anyone : sends_.front().message.peer;
}

/// A socket reports the death of its peer; a ring does not. So the watchdog is asked about each peer.
Result<void> NodeTransport::keep_waiting(calls::Watchdog& watchdog) {
  if (auto status = watchdog.keep_waiting(awaited()); !status) return status;
  for (const auto* list : {&receives_, &sends_}) {
    ++pass_;
    // NOLINTNEXTLINE(modernize-loop-convert): the watchdog may post messages, which makes the list longer
    for (std::size_t i = 0; i < list->size(); ++i) {
      const Progress& each = (*list)[i];
      if (std::exchange(neighbours_[each.neighbour].busy, pass_) == pass_) continue;
      if (auto status = watchdog.keep_waiting(each.message.peer); !status) return status;
    }
  }
  return {};
}

/// With a processor per rank it polls for a few microseconds, then yields, and after a long wait sleeps for short
/// times. No process needs to be woken, so sending stays cheap. Messages from other nodes wait until the sleep ends.
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

/// The sleep is a small part of the time waited so far, so that it adds little to it.
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
  for (const Progress& each : sends_) {
    if (each.is_offered) neighbours_[each.neighbour].to.give_up();
  }
  sends_.clear();
  receives_.clear();
  others_->give_up();
}

}  // namespace amldist::collective
