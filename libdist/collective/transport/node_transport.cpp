#include "collective/transport/node_transport.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <thread>
#include <utility>

#include "collective/node/channel/relax.hpp"

namespace amldist::collective {
namespace {

/// The next part of a message of which `done` of `all` bytes, header included, have moved: the other end continues
/// while this one copies the next part. A short rest comes with the part before it: otherwise both ends would wait for
/// it.
constexpr std::size_t part_after(std::size_t done, std::size_t all) noexcept {
  const std::size_t usual = all < 24UL << 10 ? 4UL << 10 : all < 128UL << 10 ? 16UL << 10 : 32UL << 10;
  const std::size_t part = usual - done % usual;
  return all - done < part + usual / 2 ? all - done : part;
}
static_assert(part_after(0, tuning::longest_short_message) == tuning::longest_short_message);
/// Bytes that are moved through a ring in a turn, before other messages and the other direction get theirs.
constexpr std::size_t a_turn = 128UL << 10;
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
  return static_cast<std::size_t>(ranks) * ranks * MessageRing::bytes_of(ranks);
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
  const std::size_t ranks = ranks_.size();
  const auto ring = [&](std::size_t sender, std::size_t receiver) -> MessageRing& {
    return *reinterpret_cast<MessageRing*>(memory + (sender * ranks + receiver) * MessageRing::bytes_of(ranks));
  };
  const std::size_t capacity = MessageRing::capacity_of(ranks);
  assert(!ranks_.empty() && std::ranges::is_sorted(ranks_));
  indices_.assign(static_cast<std::size_t>(ranks_.back()) + 1, elsewhere);
  for (std::size_t i = 0; i < ranks; ++i) {
    if (i != own_) indices_[static_cast<std::size_t>(ranks_[i])] = static_cast<std::uint32_t>(i);
    neighbours_.push_back(
        {RingWriter(ring(own_, i), capacity, random_key()), RingReader(ring(i, own_), capacity), {}, {}});
  }
}

std::size_t NodeTransport::Progress::next_part() const noexcept { return part_after(done, done + remaining()); }

std::span<std::byte> NodeTransport::Progress::data(std::size_t bytes) const noexcept {
  const std::size_t in_header = done < header() ? header() - done : 0;
  return {message.data + (done + in_header - header()), bytes - in_header};
}

std::optional<std::size_t> NodeTransport::index_of(int peer) const noexcept {
  const auto rank = static_cast<std::size_t>(peer);  // `anyone` becomes the largest number
  const std::uint32_t index = rank < indices_.size() ? indices_[rank] : elsewhere;
  return index == elsewhere ? std::nullopt : std::optional<std::size_t>(index);
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
  const bool was_empty = queue.is_empty();
  Progress& begun = queue.push(message, left, *index);
  if (begun_ && begun_->direction == direction && begun_->message.neighbour == *index &&
      begun_->message.message.data == message.data) {
    begun = std::exchange(begun_, std::nullopt)->message;
    begun.left = &left;
  } else if (sends && is_tried(message)) {
    choose_way(neighbour, begun);
    count(neighbour.to, begun);
  }
  if (was_empty) {
    if (sends) {
      const auto moved = push(begun, watchdog);
      if (!moved) return moved.error();
      if (begun.remaining() == 0) {
        queue.pop();
        return {};
      }
    }
    (sends ? sending_ : receiving_).push_back(*index);
  }
  ++left;
  is_new_ = true;
  return {};
}

bool NodeTransport::move_at_once(const Message& message, Direction direction, Look look) {
  const auto index = index_of(message.peer);
  if (!index) return others_->move_at_once(message, direction, look);
  pauses_.begin_call();
  if (begun_) return false;  // a part of it is in the ring: the rest is post()'s
  Neighbour& neighbour = neighbours_[*index];
  const bool may_wait = look == Look::briefly;
  if (direction == Direction::send) {
    if (!neighbour.sends.is_empty()) return false;
    return send_at_once(neighbour, message) || (may_wait && send_in_step(*index, message));
  }
  const bool is_one_part = is_short(header_bytes(message.bytes) + message.bytes);
  if (!is_one_part && !may_wait) return false;
  if (!neighbour.receives.is_empty() && !take_arrived(*index)) return false;
  constexpr int brief = 128;  // two or three microseconds
  const int polls = !may_wait ? 1 : oversubscribed_ ? looks_of_shared_processors : brief;
  return is_one_part ? receive_at_once(neighbour.from, message, polls) : receive_in_step(*index, message, polls);
}

std::optional<VainLooks> NodeTransport::vain_looks(const Message& moved) const noexcept {
  if (!index_of(moved.peer)) return others_->vain_looks(moved);
  // Copying a longer one takes time of its own.
  return is_short(header_bytes(moved.bytes) + moved.bytes) ? std::optional(pauses_.looks()) : std::nullopt;
}

/// Between two looks for what another rank does.
void NodeTransport::pause() noexcept {
  if (!oversubscribed_) return pauses_.pause();
  pauses_.wait_otherwise();
  std::this_thread::yield();
}

/// Moves a long message while the other rank does its part. If that pauses, post() goes on with the message.
template <typename Move>
bool NodeTransport::move_in_step(Progress message, Direction direction, Move move) {
  const int patience = oversubscribed_ ? looks_of_shared_processors : 512;  // polls: 8 to 13 microseconds
  for (int idle = 0; message.remaining() != 0 && idle < patience; ++idle) {
    const auto moved = move(message);
    if (!moved) break;  // the ring is damaged, or the fetch has failed: progress() reports that
    if (*moved != 0) idle = -1;
    else pause();
  }
  if (message.remaining() == 0) return true;
  begun_ = {message, direction};
  return false;
}

void NodeTransport::choose_way(const Neighbour& neighbour, Progress& send) const noexcept {
  if (!is_tried(send.message)) return;
  const auto receives = neighbour.receives.all();
  send.goes_both_ways = receives.size() > 1 && is_tried(receives.back().message);
  const std::size_t its_class = tuning::message_class(send.message.bytes, send.goes_both_ways);
  const bool is_too_short = send.goes_both_ways && send.message.bytes < tuning::both_ways_fetched_from;
  send.way = neighbour.to.next_way(its_class, peers_ != nullptr && !is_too_short);
}

void NodeTransport::count(RingWriter& ring, const Progress& send) const noexcept {
  if (is_tried(send.message)) ring.count(tuning::message_class(send.message.bytes, send.goes_both_ways));
}

bool NodeTransport::send_in_step(std::size_t neighbour, const Message& message) {
  RingWriter& ring = neighbours_[neighbour].to;
  Progress send(message, nullptr, neighbour);
  choose_way(neighbours_[neighbour], send);
  count(ring, send);
  return move_in_step(send, Direction::send, [&ring](Progress& each) {
    return each.is_offered() ? offer_alone(ring, each) : put_parts(ring, each);
  });
}

bool NodeTransport::receive_in_step(std::size_t neighbour, const Message& message, int polls) {
  RingReader& ring = neighbours_[neighbour].from;
  const auto announced = await_header(ring, message, polls);
  if (!announced) return false;
  Progress receive(message, nullptr, neighbour);
  receive.message.bytes = announced->length();
  receive.way = announced->way();
  receive.goes_both_ways = announced->goes_both_ways();
  receive.done = receive.header();
  if (receive.is_offered()) {
    ring.take_header(header_words, MessageRing::line);
    receive.from = ring.take_address();
  } else {
    ring.take_header(receive.header(), part_after(0, receive.all()));
  }
  begin_timing(ring, receive);
  const bool is_whole = move_in_step(receive, Direction::receive, [&](Progress& each) {
    if (each.is_offered()) return fetch_part(each) ? std::optional<std::size_t>(1) : std::nullopt;
    return take_parts(ring, each);
  });
  if (is_whole) end_timing(ring, receive);
  return is_whole;
}

/// Receives what has arrived of short messages that were posted; whether no other message of this neighbour is awaited
/// then. The next progress() reports them. Looks when 1, 2, 4, ... messages are awaited: each look takes the line from
/// its writer, which may not have begun to write.
bool NodeTransport::take_arrived(std::size_t neighbour) noexcept {
  auto& [to, from, sends, receives] = neighbours_[neighbour];
  const std::size_t awaited = receives.all().size();
  if ((awaited & (awaited - 1)) != 0) return false;  // std::has_single_bit() is a call on processors that may lack it
  while (!receives.is_empty() && receives.front().done == 0 && receive_at_once(from, receives.front().message, 1)) {
    --*receives.front().left;
    receives.pop();
    has_taken_ = true;
  }
  if (!receives.is_empty()) return false;
  std::erase(receiving_, neighbour);
  return true;
}

/// A damaged ring has no room: post() finds out.
bool NodeTransport::send_at_once(Neighbour& neighbour, const Message& message) const noexcept {
  RingWriter& ring = neighbour.to;
  const std::size_t all = header_bytes(message.bytes) + message.bytes;
  if (is_short(all)) {
    if (!ring.are_in_one_piece(all) || !ring.fits_short(all).value_or(false)) return false;
    ring.write_short({message.signature}, header_bytes(message.bytes), {message.data, message.bytes});
    return true;
  }
  Progress send(message);
  if (all > std::min(a_turn, ring.capacity() / 2) || !ring.fits(all).value_or(false)) return false;
  choose_way(neighbour, send);
  if (send.is_offered()) return false;
  count(ring, send);
  return put_parts(ring, send).has_value();
}

/// The message, once all of its first part is in the ring. nullopt, too, for another message than the
/// expected one: post() finds out what that is.
std::optional<RingReader::Announced> NodeTransport::await_header(RingReader& ring, const Message& message,
                                                                 int polls) noexcept {
  auto found = ring.announced(message.signature);
  for (int poll = 1; poll < polls && !found; ++poll) {
    pause();
    found = ring.announced(message.signature);
  }
  const bool is_expected = found &&
                           (message.is_most ? found->length() <= message.bytes : found->length() == message.bytes) &&
                           (!found->is_offered() || peers_ != nullptr);
  return is_expected ? found : std::nullopt;
}

bool NodeTransport::receive_at_once(RingReader& ring, const Message& message, int polls) noexcept {
  const auto announced = await_header(ring, message, polls);
  if (!announced) return false;
  const std::uint64_t length = announced->length();
  const std::size_t all = header_bytes(length) + length;
  // The rest of a longer one is not in the ring yet. One that goes on at the ring's beginning is rare.
  if (!is_short(all) || announced->is_offered() || !ring.are_in_one_piece(all)) return false;
  ring.read_short(header_bytes(length), {message.data, length});
  return true;
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
      const bool took_a_turn = oldest.is_offered() && queue == &Neighbour::receives;
      --*oldest.left;
      messages.pop();
      if (took_a_turn) break;  // the sends get the next one
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
  const bool has_moved = *sent || *got || std::exchange(has_taken_, false);
  if (others_are_idle_) return has_moved;
  const auto moved = others_->progress(watchdog);
  if (!moved) return moved.error();
  others_are_idle_ = others_->awaited() == calls::Watchdog::anyone;
  return has_moved || *moved;
}

/// Shows where the data is. Returns whether there was room for that; nullopt if the ring is damaged.
std::optional<bool> NodeTransport::show(RingWriter& ring, Progress& send) noexcept {
  const auto fits = ring.fits(MessageRing::line);
  if (!fits.value_or(false)) return fits;
  const std::uint64_t contents[] = {send.message.bytes, reinterpret_cast<std::uintptr_t>(send.message.data)};
  ring.begin_message({send.message.signature, MessageWay::fetched, send.goes_both_ways});
  ring.put(std::as_bytes(std::span(contents)));
  ring.publish(0);
  send.done = send.header();
  send.from = ring.offered();
  return true;
}

/// Puts into the ring what the oldest messages need there: where those are that are to be fetched, and those between
/// them that are too short for that. Returns whether anything was put there; nullopt if the ring is damaged.
std::optional<bool> NodeTransport::put_ahead(RingWriter& ring, std::span<Progress> oldest) noexcept {
  bool any = false;
  const auto needs_room = [](const Progress& each) {
    return each.is_offered() ? each.done == 0 : each.remaining() != 0;
  };
  for (Progress& each : oldest) {
    if (!each.is_offered() && each.message.bytes >= tuning::message_tried_from) break;
    if (!needs_room(each)) continue;
    std::optional<bool> has_put;
    if (each.is_offered()) has_put = show(ring, each);
    else if (const auto bytes = put_parts(ring, each)) has_put = *bytes != 0;
    if (!has_put) return std::nullopt;
    any = any || *has_put;
    if (needs_room(each)) break;
  }
  return any;
}

/// Offers the oldest message, and at once those behind it: otherwise the receiver would wait for this rank after each.
/// A message has ended when the receiver has it.
Result<bool> NodeTransport::offer(Progress& oldest, calls::Watchdog& watchdog) {
  constexpr std::size_t most_at_once = 16;  // eight with tags, each of which follows a short one with its head
  Neighbour& neighbour = neighbours_[oldest.neighbour];
  const auto any = put_ahead(neighbour.to, neighbour.sends.first(most_at_once));
  if (!any) return watchdog.lost(oldest.message.peer, damaged);
  if (oldest.done == 0) return false;
  const auto fetched = neighbour.to.is_fetched(oldest.from);
  if (!fetched) return watchdog.lost(oldest.message.peer, damaged);
  if (*fetched) oldest.done = oldest.all();
  return *any || *fetched;
}

/// Offers a message with no other behind it or, if that is done, looks whether it was fetched. Returns 0 if there was
/// no room, or it was not; nullopt if the ring is damaged.
std::optional<std::size_t> NodeTransport::offer_alone(RingWriter& ring, Progress& send) noexcept {
  const bool is_shown = send.done != 0;
  const auto has_happened = is_shown ? ring.is_fetched(send.from) : show(ring, send);
  if (!has_happened) return std::nullopt;
  if (is_shown && *has_happened) send.done = send.all();
  return *has_happened ? 1 : 0;
}

void NodeTransport::put_header(RingWriter& ring, const Progress& send) noexcept {
  const std::uint64_t length = send.message.bytes;
  ring.begin_message({send.message.signature, send.way, send.goes_both_ways});
  ring.put(std::as_bytes(std::span(&length, 1)));
  if (header_bytes(length) == MessageRing::line) ring.end_line();
}

/// Writes at most a turn's bytes. Returns how many bytes of header and data; nullopt if the ring is damaged.
std::optional<std::size_t> NodeTransport::put_parts(RingWriter& ring, Progress& send) noexcept {
  std::size_t moved = 0;
  while (send.remaining() != 0 && moved < a_turn) {
    const std::size_t bytes = send.next_part();
    const auto fits = is_short(send.all()) ? ring.fits_short(bytes) : ring.fits(bytes);
    if (!fits) return std::nullopt;
    if (!*fits) break;  // less than a part would be one more for both ends to wait for
    if (send.done == 0) put_header(ring, send);
    ring.put(send.data(bytes), send.way);
    send.done += bytes;
    ring.publish(send.whole_short());
    moved += bytes;
  }
  return moved;
}

Result<bool> NodeTransport::push(Progress& send, calls::Watchdog& watchdog) {
  if (send.is_offered()) return offer(send, watchdog);
  const auto moved = put_parts(neighbours_[send.neighbour].to, send);
  if (!moved) return watchdog.lost(send.message.peer, damaged);
  return *moved != 0;
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
  const bool is_expected = start && start->signature == receive.message.signature && has_length &&
                           (start->way != MessageWay::fetched || peers_ != nullptr);
  if (!is_expected) return watchdog.differs(receive.message.peer);
  receive.message.bytes = length;
  receive.way = start->way;
  receive.goes_both_ways = start->goes_both_ways;
  if (is_announced) ring.known(begins, receive.is_offered() ? MessageRing::line : receive.next_part());
  if (receive.is_offered()) receive.from = ring.take_address();
  else if (receive.header() == MessageRing::line) ring.end_line();
  receive.done = receive.header();
  begin_timing(ring, receive);
  return true;
}

void NodeTransport::begin_timing(RingReader& ring, Progress& receive) const noexcept {
  if (!is_tried(receive.message)) return;
  const std::size_t its_class = tuning::message_class(receive.message.bytes, receive.goes_both_ways);
  if (ring.is_timed(its_class, receive.way)) receive.begun = Clock::now();
}

/// The header comes when the sender has copied the first part; the other parts are copied at both ends at once. A
/// message that the ring holds may have been copied before this rank looked, so its first part is counted, too. Where
/// messages go both ways, each rank also copies as much in, to lines that the other one has in its cache: that takes
/// about twice as long as to copy out.
void NodeTransport::end_timing(RingReader& ring, const Progress& receive) noexcept {
  if (receive.begun == Clock::time_point()) return;
  const std::size_t bytes = receive.message.bytes;
  auto took = Clock::now() - receive.begun;
  if (!receive.is_offered() && receive.goes_both_ways) took *= 3;
  else if (!receive.is_offered() && bytes <= ring.capacity())
    took += took * static_cast<long>(part_after(0, receive.all())) / static_cast<long>(bytes);
  ring.note(tuning::message_class(bytes, receive.goes_both_ways), receive.way, bytes, took);
}

/// Fetches the next part of what the peer has offered.
Result<void> NodeTransport::fetch_part(Progress& receive) {
  RingReader& ring = neighbours_[receive.neighbour].from;
  const std::size_t bytes = std::min(receive.remaining(), fetched_at_once);
  const std::size_t at = receive.done - receive.header();
  auto read = peers_->read(receive.neighbour, receive.message.data + at, receive.from + at, bytes);
  if (ring.has_given_up()) return Error{Errc::aborted, "it has given up the call"};
  if (!read) return read;
  receive.done += bytes;
  if (receive.remaining() == 0) ring.finish_fetching();
  return {};
}

/// Receives in a single copy.
Result<bool> NodeTransport::fetch(Progress& receive, calls::Watchdog& watchdog) {
  if (auto status = fetch_part(receive); !status) return why_not_fetched(receive, status.error(), watchdog);
  return true;
}

/// A bad buffer of this rank ends its process, as copying to it would.
Error NodeTransport::why_not_fetched(const Progress& receive, const Error& error, calls::Watchdog& watchdog) const {
  const std::size_t bytes = std::min(receive.remaining(), fetched_at_once);
  if (error.code != Errc::invalid_argument) return watchdog.lost(receive.message.peer, error.message);
  write_to_each_page(receive.message.data + (receive.done - receive.header()), bytes);
  return bad_buffer_of(receive.message.peer, host_, bytes, error.message);
}

/// As put_parts(), for what was written.
std::optional<std::size_t> NodeTransport::take_parts(RingReader& ring, Progress& receive) noexcept {
  std::size_t moved = 0;
  while (receive.remaining() != 0 && moved < a_turn) {
    const std::size_t wanted = receive.next_part();
    const auto available = ring.available(wanted);
    if (!available) return std::nullopt;
    const std::size_t bytes = std::min(wanted, *available);
    if (bytes == 0) break;
    ring.take(receive.data(bytes));
    receive.done += bytes;
    ring.release(receive.whole_short());
    moved += bytes;
  }
  return moved;
}

/// Receives from the ring.
Result<bool> NodeTransport::stream(Progress& receive, calls::Watchdog& watchdog) {
  const auto moved = take_parts(neighbours_[receive.neighbour].from, receive);
  if (!moved) return watchdog.lost(receive.message.peer, damaged);
  return *moved != 0;
}

Result<bool> NodeTransport::pull(Progress& receive, calls::Watchdog& watchdog) {
  RingReader& ring = neighbours_[receive.neighbour].from;
  const bool begins = receive.done == 0;
  if (begins && is_short(receive.all()) && receive_at_once(ring, receive.message, 1)) {
    receive.done += receive.remaining();
    return true;
  }
  if (begins) {
    auto begun = take_header(receive, watchdog);
    if (!begun || !*begun) return begun;
    if (receive.remaining() == 0) ring.release(receive.whole_short());
  }
  auto more = receive.is_offered() ? fetch(receive, watchdog) : stream(receive, watchdog);
  if (!more) return more;
  if (receive.remaining() == 0) end_timing(ring, receive);
  return begins || *more;
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
    if (idle < polls / 2) pauses_.pause();
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
  if (begun_ && begun_->direction == Direction::send && begun_->message.is_offered())
    neighbours_[begun_->message.neighbour].to.give_up();
  sending_.clear();
  receiving_.clear();
  begun_.reset();
  others_->give_up();
}

}  // namespace amldist::collective
