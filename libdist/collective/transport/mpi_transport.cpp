#include "collective/transport/mpi_transport.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <thread>
#include <utility>

namespace amldist::collective {
namespace {

/// Up to this size a copy is cheaper than a second message.
constexpr std::size_t longest_copy = Transport::one_packet;

std::size_t copied_of(const Message& message) { return std::min(message.bytes, longest_copy); }

}  // namespace

inline MpiTransport::Piece& MpiTransport::next_piece(const Message& message, bool is_receive, std::size_t& left) {
  if (under_way_ == requests_.size()) {
    pieces_.emplace_back();
    requests_.push_back(0);
  }
  Piece& piece = pieces_[under_way_];
  piece.left = &left;
  piece.peer = message.peer;
  piece.is_receive = is_receive;
  piece.is_through = false;
  piece.header = nullptr;
  return piece;
}

inline Result<void> MpiTransport::begin(Piece& piece, std::byte* data, std::size_t reach, calls::Watchdog& watchdog) {
  const auto& mpi = session_.functions();
  const int peer = peers_[static_cast<std::size_t>(piece.peer)].rank;
  const int count = static_cast<int>(reach);
  amldist_mpi_handle& request = requests_[under_way_];
  const int error = piece.is_receive ? mpi.receive(session_.comm(), data, count, peer, tag_, &request)
                                     : mpi.send(session_.comm(), data, count, peer, tag_, &request);
  if (error != 0) return watchdog.lost(piece.peer, session_.error_text(error));
  if (request == 0) {  // already complete; progress() reports it
    is_sent_ = true;
    return {};
  }
  ++under_way_;
  ++*piece.left;
  return {};
}

/// Whether this message carries a signature. Both sides decide alike as long as they make the same calls.
bool MpiTransport::is_first_of_call(Peer& peer, const Message& message, bool is_receive) const {
  if (signing_ == Signing::each_message) return true;
  return std::exchange(is_receive ? peer.from : peer.to, message.signature) != message.signature;
}

/// Posts the header and the first part of the data.
inline Result<void> MpiTransport::post_signed(Peer& peer, const Message& message, bool is_receive, std::size_t& left,
                                              calls::Watchdog& watchdog) {
  static_assert(sizeof(Header) <= room);
  const std::size_t body = copied_of(message);
  Piece& piece = next_piece(message, is_receive, left);
  piece.bytes = sizeof(Header) + body;
  const bool waits = is_receive && peer.is_near;
  if (waits) peer.owes_head = true;
  const std::size_t reach = waits ? sizeof(Header) + longest_copy : piece.bytes;
  const bool in_place = is_receive && message.has_room && !waits;
  if (!in_place && piece.stage.size() < reach) piece.stage.resize(reach);
  std::byte* const head = in_place ? message.data - sizeof(Header) : piece.stage.data();
  piece.header = head;
  const Header said = {message.signature, message.bytes};
  if (is_receive) {
    piece.expected = said;
    piece.data = message.data;
  } else {
    std::memcpy(head, &said, sizeof said);
    if (body != 0) std::memcpy(head + sizeof said, message.data, body);
  }
  return begin(piece, head, reach, watchdog);
}

Result<void> MpiTransport::post(const Message& message, Direction direction, std::size_t& left,
                                calls::Watchdog& watchdog) {
  const bool is_receive = direction == Direction::receive;
  Peer& peer = peer_of(message);
  std::size_t at = 0;
  if (!is_receive || !peer.owes_head) {
    if (!is_first_of_call(peer, message, is_receive)) return post_bare(message, is_receive, left, at, watchdog);
    if (auto status = post_signed(peer, message, is_receive, left, watchdog); !status) return status;
    at = copied_of(message);
    if (at == message.bytes) return {};
  }
  if (!is_receive || !peer.owes_head) return post_bare(message, is_receive, left, at, watchdog);
  held_.push_back({message, &left, at});
  ++left;
  return {};
}

/// Posts the data that does not follow a header, from `at` on.
Result<void> MpiTransport::post_bare(const Message& message, bool is_receive, std::size_t& left, std::size_t at,
                                     calls::Watchdog& watchdog) {
  do {  // an empty message too, because its length must match
    Piece& piece = next_piece(message, is_receive, left);
    piece.bytes = std::min(piece_, message.bytes - at);
    if (auto status = begin(piece, message.data + at, piece.bytes, watchdog); !status) return status;
    at += piece_;
  } while (at < message.bytes);
  return {};
}

/// Posts the receives that waited for a signature.
Result<void> MpiTransport::release(calls::Watchdog& watchdog) {
  for (const Held& each : std::exchange(held_, {})) {
    if (peer_of(each.message).owes_head) {
      held_.push_back(each);
      continue;
    }
    --*each.left;
    auto posted = each.at == 0 ? post(each.message, Direction::receive, *each.left, watchdog)
                               : post_bare(each.message, true, *each.left, each.at, watchdog);
    if (!posted) return posted;
  }
  return {};
}

Result<bool> MpiTransport::progress(calls::Watchdog& watchdog) {
  std::array<amldist_mpi_outcome, AMLDIST_MPI_MOST> outcomes;  // MPI writes it before it is read
  const bool is_sent = std::exchange(is_sent_, false);
  bool any = false;
  for (std::size_t at = 0; at < under_way_; at += outcomes.size()) {
    const auto count = static_cast<int>(std::min(outcomes.size(), under_way_ - at));
    int done = 0;
    const int error = session_.functions().test_some(requests_.data() + at, count, outcomes.data(), &done);
    if (error != 0) return watchdog.lost(pieces_[at].peer, session_.error_text(error));
    for (const auto& outcome : std::span(outcomes).first(static_cast<std::size_t>(done))) {
      Piece& piece = pieces_[at + static_cast<std::size_t>(outcome.index)];
      if (auto status = finish(piece, outcome, watchdog); !status) return status.error();
    }
    any = any || done != 0;
  }
  if (any) forget_finished();
  if (!held_.empty()) {
    if (auto status = release(watchdog); !status) return status.error();
  }
  return any || is_sent;
}

Result<void> MpiTransport::finish(Piece& piece, const amldist_mpi_outcome& outcome, calls::Watchdog& watchdog) {
  piece.is_through = true;
  // The message is longer than expected: it belongs to another call.
  if (outcome.error != 0 && piece.is_receive) return watchdog.differs(piece.peer);
  if (outcome.error != 0) return watchdog.lost(piece.peer, session_.error_text(outcome.error));
  if (piece.is_receive) {
    const int came = session_.functions().bytes_of(&outcome);
    if (auto status = accept(piece, static_cast<std::size_t>(came), watchdog); !status) return status;
  }
  --*piece.left;
  return {};
}

Result<void> MpiTransport::accept(const Piece& piece, std::size_t came, calls::Watchdog& watchdog) {
  if (came != piece.bytes) return watchdog.differs(piece.peer);
  if (piece.header == nullptr) return {};
  Header said = {};
  std::memcpy(&said, piece.header, sizeof said);
  if (said.signature != piece.expected.signature || said.bytes != piece.expected.bytes) {
    return watchdog.differs(piece.peer);
  }
  peers_[static_cast<std::size_t>(piece.peer)].owes_head = false;
  const bool is_staged = piece.header == piece.stage.data();
  if (is_staged && piece.bytes > sizeof said) {
    std::memcpy(piece.data, piece.header + sizeof said, piece.bytes - sizeof said);
  }
  return {};
}

/// Pieces under way keep their order and stay in front.
void MpiTransport::forget_finished() {
  constexpr std::size_t most =
      64;  // pieces, with their staging buffers, that are kept for reuse; only large groups use more
  std::size_t kept = 0;
  for (std::size_t i = 0; i < under_way_; ++i) {
    if (pieces_[i].is_through) continue;
    if (kept != i) {
      std::swap(pieces_[kept], pieces_[i]);
      requests_[kept] = requests_[i];
    }
    ++kept;
  }
  under_way_ = kept;
  if (under_way_ == 0 && pieces_.size() > most) pieces_.resize(most), requests_.resize(most);
}

int MpiTransport::awaited() const noexcept {
  const auto pieces = std::span(pieces_).first(under_way_);
  const auto receive = std::ranges::find_if(pieces, &Piece::is_receive);
  if (receive != pieces.end()) return receive->peer;
  return pieces.empty() ? calls::Watchdog::anyone : pieces.front().peer;
}

/// With a processor per rank it spins briefly; otherwise it yields at once. After a long wait it sleeps for short
/// times, because a message may be posted long before the peer posts its counterpart.
bool MpiTransport::rest(int idle) {
  constexpr int spins = 50;
  constexpr int yields = 20000;
  constexpr int polls_between_checks = 8;
  constexpr auto nap = std::chrono::microseconds(100);
  if (!oversubscribed_ && idle < spins) return false;
  if (idle >= yields) std::this_thread::sleep_for(nap);
  else if (!session_.yields()) std::this_thread::yield();
  return idle >= yields || idle % polls_between_checks == 0;
}

/// MPI may still read the staging buffers, so they live as long as MPI does.
void MpiTransport::give_up() noexcept {
  for (std::size_t i = 0; i < under_way_; ++i) {
    if (pieces_[i].is_through) continue;
    session_.functions().give_up(&requests_[i], pieces_[i].is_receive ? 1 : 0);
    session_.keep(std::move(pieces_[i].stage));
  }
  pieces_.clear();
  requests_.clear();
  under_way_ = 0;
  held_.clear();
}

}  // namespace amldist::collective
