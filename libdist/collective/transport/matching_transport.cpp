#include "collective/transport/matching_transport.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <string>
#include <thread>
#include <utility>

#include "base/text/text.hpp"

namespace amldist::collective {
namespace {

/// The signature of all packets: no message of a user has it for long enough to matter, because packets and data take
/// turns.
constexpr std::uint32_t packet_signature = 0x68656164;

/// The last element, which is one of `spare` if there is one.
template <typename Element>
Element& add(std::list<Element>& list, std::list<Element>& spare) {
  if (spare.empty()) return list.emplace_back();
  list.splice(list.end(), spare, spare.begin());
  return list.back();
}

}  // namespace

void MatchingTransport::Packet::fill(const Message& message) noexcept {
  head = {static_cast<std::uint64_t>(message.tag), message.signature, message.bytes};
  std::copy_n(message.data, data_bytes(message.bytes), data);
}
Message MatchingTransport::Packet::to(int peer) noexcept {
  return {peer, reinterpret_cast<std::byte*>(this), sizeof head + data_bytes(head.bytes), packet_signature};
}
Message MatchingTransport::Packet::from(int peer) noexcept {
  Message out = {peer, reinterpret_cast<std::byte*>(this), sizeof *this, packet_signature};
  out.is_most = true;
  return out;
}

Result<void> MatchingTransport::post(const Message& message, Direction direction, std::size_t& left,
                                     calls::Watchdog& watchdog) {
  if (message.tag != Message::untagged) return post_tagged(message, direction, left, watchdog);
  has_plain_ = true;
  return plain_->post(message, direction, left, watchdog);
}

Result<void> MatchingTransport::post_tagged(const Message& message, Direction direction, std::size_t& left,
                                            calls::Watchdog& watchdog) {
  if (!tagged_) {
    tagged_ = make_();
    tagged_of_all_.store(tagged_.get());
  }
  if (direction == Direction::send) return send(message, left, watchdog);
  receive(message, left);
  return {};
}

Result<void> MatchingTransport::send(const Message& message, std::size_t& left, calls::Watchdog& watchdog) {
  Sending& sending = add(sendings_, spare_);
  sending.packet.fill(message);
  sending.of_caller = &left;
  sending.left = 0;
  const std::size_t in_packet = Packet::data_bytes(message.bytes);
  Result<void> posted;
  if (!std::exchange(has_sent_head_, false))
    posted = tagged_->post(sending.packet.to(message.peer), Direction::send, sending.left, watchdog);
  if (posted && in_packet != message.bytes) posted = tagged_->post(message, Direction::send, sending.left, watchdog);
  if (sending.left != 0) ++left;
  else spare_.splice(spare_.begin(), sendings_, std::prev(sendings_.end()));
  return posted;
}

/// Messages that have arrived already are taken in progress().
void MatchingTransport::receive(const Message& message, std::size_t& left) {
  Wanted& wanted = add(wanted_, spare_wanted_);
  wanted = {message, &left, nullptr, false};
  ++left;
  if (early_.empty()) return;
  const auto is_wanted = [&](const Early& each) { return wanted.takes(each.peer, each.head.tag); };
  const auto is_taken = [&](const Early& each) {
    return std::ranges::any_of(wanted_, [&](const Wanted& other) { return other.early == &each; });
  };
  const auto found =
      std::ranges::find_if(early_, [&](const Early& each) { return is_wanted(each) && !is_taken(each); });
  if (found != early_.end()) wanted.early = &*found;
}

bool MatchingTransport::move_at_once(const Message& message, Direction direction, Look look) {
  if (message.tag == Message::untagged) return plain_->move_at_once(message, direction, look);
  if (!tagged_) return false;
  return direction == Direction::send ? send_at_once(message, look) : receive_at_once(message, look);
}

std::optional<VainLooks> MatchingTransport::vain_looks(const Message& moved) const noexcept {
  if (moved.tag == Message::untagged) return plain_->vain_looks(moved);
  if (Packet::data_bytes(moved.bytes) != moved.bytes) return std::nullopt;  // two messages of the other transport
  return moved.peer == calls::Watchdog::anyone ? pauses_.looks() : tagged_->vain_looks(moved);
}

/// The head of a long message may go first: then send() sends the rest.
bool MatchingTransport::send_at_once(const Message& message, Look look) {
  if (has_sent_head_) return false;  // of this message
  const bool is_whole = Packet::data_bytes(message.bytes) == message.bytes;
  if (!is_whole && look == Look::once) return false;
  Packet packet;  // NOLINT(cppcoreguidelines-pro-type-member-init): only the message's bytes are read
  packet.fill(message);
  if (!tagged_->move_at_once(packet.to(message.peer), Direction::send, Look::once)) return false;
  if (is_whole || tagged_->move_at_once(message, Direction::send, look)) return true;
  has_sent_head_ = true;
  return false;
}

/// Only where no other receive waits and no message came before its receive, so that there is nothing to match.
bool MatchingTransport::receive_at_once(const Message& message, Look look) {
  if (!wanted_.empty() || !early_.empty()) return false;
  if (message.peer != calls::Watchdog::anyone) return receive_at_once_from(message.peer, message, look, look);
  return receive_at_once_from_any(message, look);
}

/// Ranks of which a packet is awaited already are left to progress(), which gets its turn at one call in 64.
bool MatchingTransport::receive_at_once_from_any(const Message& message, Look look) {
  constexpr int brief = 64;
  constexpr unsigned every = 64;
  const int size = static_cast<int>(peers_.size());
  const std::size_t asked = asked_.size();
  if (asked != 0 && looks_++ % every == 0) return false;
  const bool yields = tagged_->shares_processors();
  pauses_.begin_call();
  const int rounds = look == Look::once ? 1 : yields ? looks_of_shared_processors : std::max(1, brief / size);
  for (int round = 0; round < rounds; ++round) {
    if (round != 0 && yields) {
      pauses_.wait_otherwise();
      std::this_thread::yield();
    } else if (round != 0) {
      pauses_.pause();
    }
    for (int rank = 0; rank < size; ++rank) {
      if (receive_at_once_from(rank, message, Look::once, look)) return true;
      if (asked_.size() != asked) return false;
    }
  }
  return false;
}

/// A packet that is not the message's is left to progress(), and so is the rest of a message that does not come in
/// time.
bool MatchingTransport::receive_at_once_from(int rank, const Message& message, Look for_packet, Look for_rest) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.state != Peer::State::idle) return false;
  if (!peer.packet) peer.packet = std::make_unique<Packet>();
  if (!tagged_->move_at_once(peer.packet->from(rank), Direction::receive, for_packet)) return false;
  const Head& head = peer.packet->head;
  const bool is_wanted = head.tag == static_cast<std::uint64_t>(message.tag) && head.signature == message.signature &&
                         head.bytes == message.bytes;
  if (!is_wanted || !take_rest_at_once(rank, message, for_rest)) {
    peer.state = Peer::State::head;
    peer.left = 0;
    asked_.insert(asked_.begin(), rank);  // its data may have begun to go into this message, and into no other one
    return false;
  }
  if (message.source != nullptr) *message.source = rank;
  return true;
}

/// The data of the message whose packet has come from a rank.
bool MatchingTransport::take_rest_at_once(int rank, const Message& message, Look look) {
  if (Packet::data_bytes(message.bytes) == message.bytes) {
    std::copy_n(peers_[static_cast<std::size_t>(rank)].packet->data, message.bytes, message.data);
    return true;
  }
  const Message rest = {rank, message.data, message.bytes, message.signature};
  return look == Look::briefly && tagged_->move_at_once(rest, Direction::receive, look);
}

Result<bool> MatchingTransport::progress(calls::Watchdog& watchdog) {
  bool moved = false;
  if (has_plain_) {
    const auto plain = plain_->progress(watchdog);
    if (!plain) return plain.error();
    moved = *plain;
    has_plain_ = moved || plain_->awaited() != calls::Watchdog::anyone;
  }
  if (!has_tagged()) return moved;
  const auto tagged = progress_tagged(watchdog);
  if (!tagged) return tagged.error();
  return moved || *tagged;
}

Result<bool> MatchingTransport::progress_tagged(calls::Watchdog& watchdog) {
  const auto early = take_early(watchdog);
  if (!early) return early.error();
  if (auto status = ask_for_heads(watchdog); !status) return status.error();
  const auto any = tagged_->progress(watchdog);
  if (!any) return any.error();
  bool moved = *early || *any;
  for (const int rank : asked_) {
    const auto taken = take(rank, peers_[static_cast<std::size_t>(rank)], watchdog);
    if (!taken) return taken.error();
    moved = moved || *taken;
  }
  std::erase_if(asked_, [this](int rank) { return peers_[static_cast<std::size_t>(rank)].state == Peer::State::idle; });
  return end_sends() || moved;
}

/// Receives from every rank from which a wanted message has not arrived.
Result<void> MatchingTransport::ask_for_heads(calls::Watchdog& watchdog) {
  for (const Wanted& wanted : wanted_) {
    if (!wanted.is_free()) continue;
    const bool is_any = wanted.message.peer == calls::Watchdog::anyone;
    const int end = is_any ? static_cast<int>(peers_.size()) : wanted.message.peer + 1;
    for (int rank = is_any ? 0 : wanted.message.peer; rank < end; ++rank) {
      if (auto status = ask_for_head(rank, watchdog); !status) return status;
    }
  }
  return {};
}

Result<void> MatchingTransport::ask_for_head(int rank, calls::Watchdog& watchdog) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  if (peer.state != Peer::State::idle) return {};
  if (!peer.packet) peer.packet = std::make_unique<Packet>();
  peer.state = Peer::State::head;
  asked_.push_back(rank);
  return tagged_->post(peer.packet->from(rank), Direction::receive, peer.left, watchdog);
}

/// Takes what has arrived from a rank meanwhile.
Result<bool> MatchingTransport::take(int rank, Peer& peer, calls::Watchdog& watchdog) {
  if (peer.left != 0) return false;
  if (peer.state == Peer::State::data) {
    end_data(rank, peer);
    return true;
  }
  if (auto status = begin_data(rank, peer, watchdog); !status) return status.error();
  return true;
}

Result<void> MatchingTransport::begin_data(int rank, Peer& peer, calls::Watchdog& watchdog) {
  const Head& head = peer.packet->head;
  peer.state = Peer::State::data;
  const auto found =
      std::ranges::find_if(wanted_, [&](const Wanted& each) { return each.is_free() && each.takes(rank, head.tag); });
  Message data = {rank, nullptr, head.bytes, static_cast<std::uint32_t>(head.signature)};
  if (found != wanted_.end()) {
    const Message& wanted = found->message;
    if (wanted.signature != head.signature || wanted.bytes != head.bytes) return watchdog.differs(rank);
    found->is_under_way = true;
    peer.wanted = &*found;
    data.data = wanted.data;
  } else {
    auto early = keep_early(rank, head);
    if (!early) return early.error();
    peer.early = *early;
    data.data = peer.early->data.data();
  }
  if (Packet::data_bytes(head.bytes) != head.bytes) return tagged_->post(data, Direction::receive, peer.left, watchdog);
  std::copy_n(peer.packet->data, head.bytes, data.data);
  end_data(rank, peer);
  return {};
}

/// Memory for a message whose receive has not begun. Its length is what the other rank says.
Result<MatchingTransport::Early*> MatchingTransport::keep_early(int rank, const Head& head) {
  Early early = {.peer = rank, .head = head, .data = {}};
  try {
    early.data.resize(head.bytes);
  } catch (const std::exception&) {  // bad_alloc, or length_error
    return Error{Errc::internal, text::concat({"rank ", std::to_string(rank), " has sent ", std::to_string(head.bytes),
                                               " bytes for which no receive has begun, and there is no memory to "
                                               "keep them: begin the receive first, or send less"})};
  }
  return &early_.emplace_back(std::move(early));
}

void MatchingTransport::end_data(int rank, Peer& peer) {
  peer.state = Peer::State::idle;
  if (Wanted* const wanted = std::exchange(peer.wanted, nullptr)) return end(*wanted, rank);
  std::exchange(peer.early, nullptr)->is_whole = true;
}

/// Receives whose messages arrived before them.
Result<bool> MatchingTransport::take_early(calls::Watchdog& watchdog) {
  bool any = false;
  for (auto each = wanted_.begin(); each != wanted_.end();) {
    Wanted& wanted = *each++;  // which end() removes
    const Early* const early = wanted.early;
    if (early == nullptr || !early->is_whole) continue;
    const int source = early->peer;
    if (wanted.message.signature != early->head.signature || wanted.message.bytes != early->head.bytes)
      return watchdog.differs(source);
    std::copy_n(early->data.data(), early->data.size(), wanted.message.data);
    early_.remove_if([early](const Early& other) { return &other == early; });
    end(wanted, source);
    any = true;
  }
  return any;
}

void MatchingTransport::end(Wanted& wanted, int source) {
  if (wanted.message.source != nullptr) *wanted.message.source = source;
  --*wanted.left;
  const auto at = std::ranges::find_if(wanted_, [&wanted](const Wanted& other) { return &other == &wanted; });
  spare_wanted_.splice(spare_wanted_.begin(), wanted_, at);
}

bool MatchingTransport::end_sends() {
  bool any = false;
  for (auto each = sendings_.begin(); each != sendings_.end();) {
    const auto sending = each++;
    if (sending->left != 0) continue;
    --*sending->of_caller;
    spare_.splice(spare_.begin(), sendings_, sending);
    any = true;
  }
  return any;
}

Result<void> MatchingTransport::keep_waiting(calls::Watchdog& watchdog) {
  if (!has_tagged()) return plain_->keep_waiting(watchdog);
  if (auto status = watchdog.keep_waiting(awaited()); !status) return status;
  if (has_plain_) {
    if (auto status = plain_->keep_waiting(watchdog); !status) return status;
  }
  return tagged_->keep_waiting(watchdog);
}

/// If messages of both kinds are under way, neither transport may sleep until one of its own arrives.
bool MatchingTransport::rest(int idle) {
  constexpr int yields = 256;
  if (!has_tagged()) return plain_->rest(idle);
  if (!has_plain_) return tagged_->rest(idle);
  if (idle < yields) std::this_thread::yield();
  else std::this_thread::sleep_for(std::chrono::microseconds(50));
  return idle >= yields;
}

int MatchingTransport::awaited() const noexcept {
  const auto free = std::ranges::find_if(wanted_, [](const Wanted& each) { return each.message.peer >= 0; });
  if (free != wanted_.end()) return free->message.peer;
  if (!wanted_.empty()) return calls::Watchdog::anyone;
  return has_tagged() && !has_plain_ ? tagged_->awaited() : plain_->awaited();
}

void MatchingTransport::interrupt() noexcept {
  plain_->interrupt();
  if (Transport* const tagged = tagged_of_all_.load()) tagged->interrupt();
}

void MatchingTransport::give_up() noexcept {
  plain_->give_up();
  if (tagged_) tagged_->give_up();
  sendings_.clear();
  wanted_.clear();
  asked_.clear();
  early_.clear();
  has_plain_ = false;
  has_sent_head_ = false;
}

}  // namespace amldist::collective
