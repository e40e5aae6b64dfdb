#include "collective/transport/node_transport.hpp"

#include <sys/eventfd.h>
#include <sys/random.h>

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
  const std::size_t usual = all < 24UL << 10 ? 4UL << 10 : 16UL << 10;
  const std::size_t part = usual - done % usual;
  return all - done < part + usual / 2 ? all - done : part;
}
/// Bytes that a rank copies in a turn, before other messages and the other direction get theirs. The message that
/// reaches this number still belongs to the turn.
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
  const MessageMemory shared(memory, ranks);
  const std::size_t capacity = MessageRing::capacity_of(ranks);
  assert(!ranks_.empty() && std::ranges::is_sorted(ranks_));
  indices_.assign(static_cast<std::size_t>(ranks_.back()) + 1, elsewhere);
  for (std::size_t i = 0; i < ranks; ++i) {
    if (i != own_) indices_[static_cast<std::size_t>(ranks_[i])] = static_cast<std::uint32_t>(i);
    neighbours_.push_back({RingWriter(shared.ring(own_, i), capacity, random_key()),
                           RingReader(shared.ring(i, own_), capacity),
                           BlockOwner(shared.blocks(own_, i), MessageBlocks::count_of(ranks), own_ < i),
                           {},
                           {}});
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
  Progress& begun = queue.push(message, &left, *index);
  if (begun_ && begun_->direction == direction && begun_->message.neighbour == *index &&
      begun_->message.message.data == message.data) {
    begun = std::exchange(begun_, std::nullopt)->message;
    begun.left = &left;
  } else if (sends && has_several_ways(message)) {
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
  if (begun_) return false;  // a part of it has moved: the rest is post()'s
  Neighbour& neighbour = neighbours_[*index];
  const bool may_wait = look == Look::briefly;
  if (direction == Direction::send) {
    if (!neighbour.sends.is_empty()) return false;
    return send_at_once(neighbour, message) || (may_wait && send_in_step(*index, message));
  }
  if (!is_worth_a_look(neighbour.receives)) return false;
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
  if (!has_several_ways(send.message)) return;
  const auto receives = neighbour.receives.all();
  send.goes_both_ways = receives.size() > 1 && has_several_ways(receives.back().message);
  if (oversubscribed_) {
    const bool follows = !send.goes_both_ways && neighbour.sends.all().size() > 1;  // post() has put this one there
    const bool is_fetched = send.message.bytes >= tuning::fetched_untried_from(follows);
    if (is_fetched && peers_ != nullptr) send.way = MessageWay::fetched;
    return;
  }
  const std::size_t its_class = tuning::message_class(send.message.bytes, send.goes_both_ways);
  const bool is_too_short = send.goes_both_ways && send.message.bytes < tuning::both_ways_fetched_from;
  send.way = neighbour.to.next_way(its_class, peers_ != nullptr && !is_too_short);
}

void NodeTransport::count(RingWriter& ring, const Progress& send) noexcept {
  if (has_several_ways(send.message)) ring.count(tuning::message_class(send.message.bytes, send.goes_both_ways));
}

bool NodeTransport::send_in_step(std::size_t neighbour, const Message& message) {
  Neighbour& to = neighbours_[neighbour];
  Progress send(message, nullptr, neighbour);
  choose_way(to, send);
  count(to.to, send);
  return move_in_step(send, Direction::send,
                      [&to](Progress& each) { return each.is_offered() ? offer_alone(to.to, each) : put(to, each); });
}

/// The message, once it or its first part is there. nullopt, too, for another message than the expected one: post()
/// finds out what that is.
template <typename Pause>
std::optional<RingReader::Announced> NodeTransport::await_header(RingReader& ring, const Message& message, int polls,
                                                                 Pause pause) const noexcept {
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

bool NodeTransport::receive_in_step(std::size_t neighbour, const Message& message, int polls) {
  RingReader& ring = neighbours_[neighbour].from;
  const auto announced = await_header(ring, message, polls, [this] { pause(); });
  if (!announced) return false;
  if (take_short(ring, *announced, message.data)) return true;
  Progress receive(message, nullptr, neighbour);
  begin_receiving(ring, *announced, receive);
  const bool is_whole = move_in_step(receive, Direction::receive, [&](Progress& each) {
    if (each.is_offered()) return fetch_part(each) ? std::optional<std::size_t>(1) : std::nullopt;
    return take_parts(neighbours_[neighbour], each);
  });
  if (is_whole) end_timing(ring, receive);
  return is_whole;
}

/// Receives what was announced, if it is a short message.
bool NodeTransport::take_short(RingReader& ring, RingReader::Announced announced, std::byte* to) noexcept {
  const std::uint64_t length = announced.length();
  const std::size_t header = header_bytes(length);
  if (!is_short(header + length) || announced.is_offered()) return false;
  ring.read_short(header, {to, length});
  return true;
}

/// Takes from the announcement what this rank needs to know to receive the message.
void NodeTransport::begin_receiving(RingReader& ring, RingReader::Announced announced,
                                    Progress& receive) const noexcept {
  receive.message.bytes = announced.length();
  receive.way = announced.way();
  receive.goes_both_ways = announced.goes_both_ways();
  if (receive.is_offered()) {
    receive.from = ring.where();
    ring.take_line();
    receive.done = receive.header();
  }
  begin_timing(ring, receive);
}

/// Receives what has arrived of short messages that were posted; whether no other message of this neighbour is awaited
/// then. The next progress() reports them.
bool NodeTransport::take_arrived(std::size_t neighbour) noexcept {
  Queue& receives = neighbours_[neighbour].receives;
  while (!receives.is_empty() && receives.front().done == 0 && pull_short(receives.front())) {
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
    if (!ring.fits(all).value_or(false)) return false;
    ring.write_short({message.signature}, header_bytes(message.bytes), {message.data, message.bytes});
    return true;
  }
  constexpr std::size_t most_parts = a_turn / (4UL << 10);
  if (all > a_turn || !ring.fits(most_parts * MessageRing::line).value_or(false)) return false;
  if (!neighbour.blocks.fits_whole(all).value_or(false)) return false;
  Progress send(message);
  choose_way(neighbour, send);
  if (send.is_offered()) return false;
  count(ring, send);
  return put_parts(neighbour, send).has_value();
}

bool NodeTransport::receive_at_once(RingReader& ring, const Message& message, int polls) noexcept {
  const auto announced = await_header(ring, message, polls, [this] { pause(); });
  return announced && take_short(ring, *announced, message.data);
}

/// Moves the oldest messages of each neighbour, a turn's bytes of whole messages at most: where messages go both ways,
/// a rank then writes to blocks that it has just read, and that are in its caches.
template <typename Move>
Result<bool> NodeTransport::advance(std::vector<std::size_t>& active, Queue Neighbour::*queue, Move move) {
  bool any = false;
  bool has_ended = false;
  // NOLINTNEXTLINE(modernize-loop-convert): the watchdog may post messages, which makes the list longer
  for (std::size_t i = 0; i < active.size(); ++i) {
    Queue& messages = neighbours_[active[i]].*queue;
    std::size_t turn = 0;  // bytes
    while (!messages.is_empty() && turn < a_turn) {
      Progress& oldest = messages.front();
      const auto moved = move(oldest);
      if (!moved) return moved.error();
      any = any || *moved;
      if (oldest.remaining() != 0) break;
      const bool is_copied_here = !oldest.is_offered() || queue == &Neighbour::receives;
      if (is_copied_here) turn += oldest.message.bytes;
      --*oldest.left;
      messages.pop();
      any = true;  // also if put_ahead() had moved it
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
  has_slept_ = false;
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
  ring.write_line(send.start(), send.message.bytes, reinterpret_cast<std::uintptr_t>(send.message.data));
  send.done = send.header();
  send.from = ring.offered();
  return true;
}

/// Puts into the ring what the oldest messages need there: where those are that are to be fetched, and those between
/// them that are too short for that. Returns whether anything was put there; nullopt if the ring is damaged.
std::optional<bool> NodeTransport::put_ahead(Neighbour& neighbour, std::span<Progress> oldest) noexcept {
  bool any = false;
  const auto needs_room = [](const Progress& each) {
    return each.is_offered() ? each.done == 0 : each.remaining() != 0;
  };
  for (Progress& each : oldest) {
    if (!each.is_offered() && each.message.bytes >= tuning::message_tried_from) break;
    if (!needs_room(each)) continue;
    std::optional<bool> has_put;
    if (each.is_offered()) has_put = show(neighbour.to, each);
    else if (const auto bytes = put(neighbour, each)) has_put = *bytes != 0;
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
  const auto any = put_ahead(neighbour, neighbour.sends.first(most_at_once));
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

std::optional<std::size_t> NodeTransport::put_short(RingWriter& ring, Progress& send) noexcept {
  if (send.remaining() == 0) return 0;  // put_ahead() did it
  const auto fits = ring.fits(send.all());
  if (!fits) return std::nullopt;
  if (!*fits) return 0;
  ring.write_short(send.start(), send.header(), {send.message.data, send.message.bytes});
  send.done = send.all();
  return send.done;
}

/// Writes at most a turn's bytes of a long message. Returns how many bytes of header and data; nullopt if the ring or
/// the blocks are damaged.
std::optional<std::size_t> NodeTransport::put_parts(Neighbour& neighbour, Progress& send) noexcept {
  std::size_t moved = 0;
  while (send.remaining() != 0 && moved < a_turn) {
    const std::size_t bytes = send.next_part();
    const std::span<std::byte> part = send.data(bytes);
    const auto fits = neighbour.to.fits(MessageRing::line);
    const auto has_block = neighbour.blocks.fits(part.size());
    if (!fits || !has_block) return std::nullopt;
    if (!*fits || !*has_block) break;
    neighbour.to.write_line(send.start(), send.message.bytes, neighbour.blocks.write(part, send.way));
    neighbour.to.note_long(bytes);
    send.done += bytes;
    moved += bytes;
  }
  return moved;
}

std::optional<std::size_t> NodeTransport::put(Neighbour& neighbour, Progress& send) noexcept {
  return is_short(send.all()) ? put_short(neighbour.to, send) : put_parts(neighbour, send);
}

Result<bool> NodeTransport::push(Progress& send, calls::Watchdog& watchdog) {
  if (send.is_offered()) return offer(send, watchdog);
  const auto moved = put(neighbours_[send.neighbour], send);
  if (!moved) return watchdog.lost(send.message.peer, damaged);
  return *moved != 0;
}

/// Receives a short message that has come; a window of them is received in a row.
bool NodeTransport::pull_short(Progress& receive) noexcept {
  RingReader& ring = neighbours_[receive.neighbour].from;
  if (!receive_at_once(ring, receive.message, 1)) return false;
  receive.done = receive.all();
  return true;
}

/// Begins to receive a long message, or receives a short one. False: nothing has come.
Result<bool> NodeTransport::begin_pulling(Progress& receive, calls::Watchdog& watchdog) {
  constexpr int polls = 2;  // pull_short() was the first; meanwhile the line of the position stays with the writer
  RingReader& ring = neighbours_[receive.neighbour].from;
  auto found = await_header(ring, receive.message, polls, relax_briefly);
  if (!found) {
    const auto has_more = ring.has_more();
    if (!has_more) return watchdog.lost(receive.message.peer, damaged);
    if (!*has_more) return false;
    found = await_header(ring, receive.message, 1, relax_briefly);  // it may have come since
    if (!found) return watchdog.differs(receive.message.peer);
  }
  receive.message.bytes = found->length();
  if (take_short(ring, *found, receive.message.data)) receive.done = receive.all();
  else begin_receiving(ring, *found, receive);
  return true;
}

void NodeTransport::begin_timing(RingReader& ring, Progress& receive) const noexcept {
  if (oversubscribed_ || !has_several_ways(receive.message)) return;
  const std::size_t its_class = tuning::message_class(receive.message.bytes, receive.goes_both_ways);
  if (ring.is_timed(its_class, receive.way)) receive.begun = Clock::now();
}

/// The header comes when the sender has copied the first part; the other parts are copied at both ends at once. A
/// message that the blocks hold may have been copied before this rank looked, so its first part is counted, too. Where
/// messages go both ways, each rank also copies as much in, to lines that the other one has in its cache: that takes
/// about twice as long as to copy out.
void NodeTransport::end_timing(RingReader& ring, const Progress& receive) noexcept {
  if (receive.begun == Clock::time_point()) return;
  const std::size_t bytes = receive.message.bytes;
  auto took = Clock::now() - receive.begun;
  if (!receive.is_offered() && receive.goes_both_ways) took *= 3;
  else if (!receive.is_offered() && bytes <= MessageBlocks::most * MessageBlocks::block / 2)
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
std::optional<std::size_t> NodeTransport::take_parts(Neighbour& neighbour, Progress& receive) noexcept {
  std::size_t moved = 0;
  while (receive.remaining() != 0 && moved < a_turn) {
    const auto announced = neighbour.from.announced(receive.message.signature);
    if (!announced) break;
    const std::size_t bytes = receive.next_part();
    if (announced->length() != receive.message.bytes || announced->way() != receive.way) return std::nullopt;
    if (!neighbour.blocks.read(neighbour.from.where(), receive.data(bytes))) return std::nullopt;
    neighbour.from.take_line();
    neighbour.from.note_long(bytes);
    receive.done += bytes;
    moved += bytes;
  }
  return moved;
}

/// Receives from the blocks.
Result<bool> NodeTransport::stream(Progress& receive, calls::Watchdog& watchdog) {
  const auto moved = take_parts(neighbours_[receive.neighbour], receive);
  if (!moved || (has_slept_ && *moved == 0 && has_something_else(receive)))
    return watchdog.lost(receive.message.peer, damaged);
  return *moved != 0;
}

/// Whether something other than the next part has come: by its position, the writer has written a line, but that line
/// does not announce the part. Only asked after a long wait, because reading the position slows the writer down.
bool NodeTransport::has_something_else(const Progress& receive) noexcept {
  RingReader& ring = neighbours_[receive.neighbour].from;
  const auto has_more = ring.has_more();
  return !has_more || (*has_more && !ring.announced(receive.message.signature));
}

Result<bool> NodeTransport::pull(Progress& receive, calls::Watchdog& watchdog) {
  RingReader& ring = neighbours_[receive.neighbour].from;
  const bool begins = receive.done == 0;
  if (begins && pull_short(receive)) return true;
  if (begins) {
    auto begun = begin_pulling(receive, watchdog);
    if (!begun || !*begun || receive.remaining() == 0) return begun;
  }
  auto more = receive.is_offered() ? fetch(receive, watchdog) : stream(receive, watchdog);
  if (!more) return more;
  if (receive.remaining() == 0) end_timing(ring, receive);
  return begins || *more;
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
