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
    neighbours_.push_back({RingWriter(rings[own_ * ranks_.size() + i], random_key()),
                           RingReader(rings[i * ranks_.size() + own_]),
                           {},
                           {}});
  }
}

std::span<std::byte> NodeTransport::Progress::data(std::size_t bytes) const noexcept {
  const std::size_t in_header = done < header() ? header() - done : 0;
  return {message.data + (done + in_header - header()), bytes - in_header};
}

void NodeTransport::Queue::pop() noexcept {
  constexpr std::size_t most_ended = 256;  // what has ended is moved out seldom
  ++first_;
  if (is_empty()) return clear();
  if (first_ < most_ended || first_ < messages_.size() / 2) return;
  messages_.erase(messages_.begin(), messages_.begin() + static_cast<std::ptrdiff_t>(first_));
  first_ = 0;
}

void NodeTransport::Queue::clear() noexcept {
  messages_.clear();
  first_ = 0;
}

std::optional<std::size_t> NodeTransport::index_of(int peer) const noexcept {
  const auto found = std::ranges::lower_bound(ranks_, peer);
  const auto index = static_cast<std::size_t>(found - ranks_.begin());
  return found == ranks_.end() || *found != peer || index == own_ ? std::nullopt : std::optional(index);
}

/// A send begins at once, and ends if the ring has room for all of it.
Result<void> NodeTransport::post(const Message& message, Direction direction, std::size_t& left,
                                 calls::Watchdog& watchdog) {
  const auto index = index_of(message.peer);
  if (!index) {
    others_are_idle_ = false;
    return others_->post(message, direction, left, watchdog);
  }
  const bool sends = direction == Direction::send;
  Neighbour& neighbour = neighbours_[*index];
  Queue& queue = sends ? neighbour.sends : neighbour.receives;
  Progress begun = {message, &left, *index};
  begun.is_offered = sends && may_be_fetched(message) && neighbour.to.offers(message.bytes);
  if (queue.is_empty()) {
    if (sends) {
      const auto moved = push(begun, watchdog);
      if (!moved) return moved.error();
      if (begun.remaining() == 0) return {};
    }
    (sends ? sending_ : receiving_).push_back(*index);
  }
  queue.push(begun);
  ++left;
  is_new_ = true;
  return {};
}

/// Moves the oldest messages of each neighbour.
template <typename Move>
Result<bool> NodeTransport::advance(std::vector<std::size_t>& active, Queue Neighbour::*queue, Move move) {
  bool any = false;
  bool has_ended = false;
  // NOLINTNEXTLINE(modernize-loop-convert): the watchdog may post messages, which makes the list longer
  for (std::size_t i = 0; i < active.size(); ++i) {
    Queue& messages = neighbours_[active[i]].*queue;
    while (!messages.is_empty()) {
      Progress& oldest = messages.front();
      const auto moved = move(oldest);
      if (!moved) return moved.error();
      any = any || *moved;
      if (oldest.remaining() != 0) break;
      --*oldest.left;
      messages.pop();
    }
    has_ended = has_ended || messages.is_empty();
  }
  if (has_ended) std::erase_if(active, [&](std::size_t index) { return (neighbours_[index].*queue).is_empty(); });
  return any;
}

Result<bool> NodeTransport::progress(calls::Watchdog& watchdog) {
  const auto sent = advance(sending_, &Neighbour::sends, [&](Progress& each) { return push(each, watchdog); });
  if (!sent) return sent.error();
  const auto got = advance(receiving_, &Neighbour::receives, [&](Progress& each) { return pull(each, watchdog); });
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
  const bool has_length = receive.message.is_most ? length <= receive.message.bytes : length == receive.message.bytes;
  const bool is_expected =
      start && start->signature == receive.message.signature && has_length && (!start->is_offered || peers_ != nullptr);
  if (!is_expected) return watchdog.differs(receive.message.peer);
  receive.message.bytes = length;
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
  if (!receiving_.empty()) return ranks_[receiving_.front()];
  if (const int other = others_->awaited(); other != calls::Watchdog::anyone) return other;
  return sending_.empty() ? calls::Watchdog::anyone : ranks_[sending_.front()];
}

/// A socket reports the death of its peer; a ring does not. So the watchdog is asked about each peer.
Result<void> NodeTransport::keep_waiting(calls::Watchdog& watchdog) {
  if (auto status = watchdog.keep_waiting(awaited()); !status) return status;
  for (const auto* active : {&receiving_, &sending_}) {
    // NOLINTNEXTLINE(modernize-loop-convert): the watchdog may post messages, which makes the list longer
    for (std::size_t i = 0; i < active->size(); ++i) {
      if (auto status = watchdog.keep_waiting(ranks_[(*active)[i]]); !status) return status;
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
  for (Neighbour& each : neighbours_) {
    if (std::ranges::any_of(each.sends.all(), &Progress::is_offered)) each.to.give_up();
    each.sends.clear();
    each.receives.clear();
  }
  sending_.clear();
  receiving_.clear();
  others_->give_up();
}

}  // namespace amldist::collective
