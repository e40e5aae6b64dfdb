#include "collective/mpi_transport.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <thread>
#include <utility>

namespace amldist::collective {
namespace {

struct Header {
  std::uint64_t signature;
  std::uint64_t bytes;
};

/// Up to here a copy is cheaper than a second message.
constexpr std::size_t longest_copy = Transport::one_packet;

std::size_t copied_of(const Message& message) { return std::min(message.bytes, longest_copy); }

static_assert(sizeof(Header) <= Transport::room);

}  // namespace

MpiTransport::Stage MpiTransport::take_stage(std::size_t bytes) {
  Stage stage;
  if (!stages_.empty()) {
    stage = std::move(stages_.back());
    stages_.pop_back();
  }
  if (stage.size() < bytes) stage.resize(bytes);
  return stage;
}

void MpiTransport::return_stage(Stage stage) {
  constexpr std::size_t most = 64;  // more are in use in large groups only
  if (!stage.empty() && stages_.size() < most) stages_.push_back(std::move(stage));
}

/// Whether it is signed. Both sides find the same, as long as they are in the same calls.
bool MpiTransport::is_first_of_call(const Message& message, bool is_receive) {
  if (signing_ == Signing::each_message) return true;
  Signatures& last = signed_[static_cast<std::size_t>(message.peer)];
  return std::exchange(is_receive ? last.from : last.to, message.signature) != message.signature;
}

Result<void> MpiTransport::post(const Message& message, Direction direction, std::size_t& left, Vigil& vigil) {
  const bool is_receive = direction == Direction::receive;
  if (!is_receive || !is_held_up(message)) return post_from(message, is_receive, left, 0, vigil);
  hold(message, left, 0);
  return {};
}

Result<void> MpiTransport::post_from(const Message& message, bool is_receive, std::size_t& left, std::size_t at,
                                     Vigil& vigil) {
  if (at == 0 && is_first_of_call(message, is_receive)) {
    if (auto posted = post_signed(message, is_receive, left, vigil); !posted) return posted;
    at = copied_of(message);
    if (at == message.bytes) return {};
    if (is_receive && is_held_up(message)) {
      hold(message, left, at);
      return {};
    }
  }
  do {  // an empty one, too: its length is a thing to agree on
    Piece piece = {message, &left, is_receive, false, {}, nullptr, std::min(piece_, message.bytes - at)};
    if (auto posted = post_piece(std::move(piece), message.data + at, vigil); !posted) return posted;
    at += piece_;
  } while (at < message.bytes);
  return {};
}

void MpiTransport::hold(const Message& message, std::size_t& left, std::size_t at) {
  held_.push_back({message, &left, at});
  ++left;
}

/// Receives what has waited for a signature.
Result<void> MpiTransport::release(Vigil& vigil) {
  for (const Held& each : std::exchange(held_, {})) {
    if (is_held_up(each.message)) {
      held_.push_back(each);
      continue;
    }
    --*each.left;
    if (auto posted = post_from(each.message, true, *each.left, each.at, vigil); !posted) return posted;
  }
  return {};
}

/// The header and the first part of the data.
Result<void> MpiTransport::post_signed(const Message& message, bool is_receive, std::size_t& left, Vigil& vigil) {
  const std::size_t body = copied_of(message);
  Piece head = {message, &left, is_receive, false, {}, nullptr, sizeof(Header) + body};
  const auto peer = static_cast<std::size_t>(message.peer);
  const bool waits = is_receive && near_[peer];
  const bool in_place = is_receive && message.has_room && !waits;
  if (waits) head.room = sizeof(Header) + longest_copy;
  if (waits) heads_[peer] = true;
  if (!in_place) head.stage = take_stage(std::max(head.bytes, head.room));
  // The stage's memory stays where it is when its owner moves.
  std::byte* const staged = in_place ? message.data - sizeof(Header) : head.stage.data();
  head.header = staged;
  if (!is_receive) {
    const Header said = {message.signature, message.bytes};
    std::memcpy(staged, &said, sizeof said);
    if (body != 0) std::memcpy(staged + sizeof said, message.data, body);
  }
  return post_piece(std::move(head), staged, vigil);
}

Result<void> MpiTransport::post_piece(Piece&& piece, std::byte* data, Vigil& vigil) {
  const auto& mpi = session_.functions();
  const int peer = static_cast<int>(watch_.members()[static_cast<std::size_t>(piece.message.peer)]);
  const int count = static_cast<int>(std::max(piece.bytes, piece.room));
  amldist_mpi_handle request = 0;
  const int error = piece.is_receive ? mpi.receive(session_.comm(), data, count, peer, tag_, &request)
                                     : mpi.send(session_.comm(), data, count, peer, tag_, &request);
  if (error != 0) return vigil.lost(piece.message.peer, session_.error_text(error));
  ++*piece.left;
  pieces_.push_back(std::move(piece));
  requests_.push_back(request);
  return {};
}

Result<bool> MpiTransport::progress(Vigil& vigil) {
  std::array<amldist_mpi_outcome, AMLDIST_MPI_MOST> outcomes;  // written by MPI before it is read
  bool any = false;
  for (std::size_t at = 0; at < pieces_.size(); at += outcomes.size()) {
    const auto count = static_cast<int>(std::min(outcomes.size(), pieces_.size() - at));
    int done = 0;
    const int error = session_.functions().test_some(requests_.data() + at, count, outcomes.data(), &done);
    if (error != 0) return vigil.lost(pieces_[at].message.peer, session_.error_text(error));
    for (const auto& outcome : std::span(outcomes).first(static_cast<std::size_t>(done))) {
      Piece& piece = pieces_[at + static_cast<std::size_t>(outcome.index)];
      if (auto finished = finish(piece, outcome, vigil); !finished) return finished.error();
    }
    any = any || done != 0;
  }
  if (any) forget_finished();
  if (!held_.empty()) {
    if (auto released = release(vigil); !released) return released.error();
  }
  return any;
}

Result<void> MpiTransport::finish(Piece& piece, const amldist_mpi_outcome& outcome, Vigil& vigil) {
  piece.is_through = true;
  // What came is longer than what is expected: another call's.
  if (outcome.error != 0 && piece.is_receive) return vigil.differs(piece.message.peer);
  if (outcome.error != 0) return vigil.lost(piece.message.peer, session_.error_text(outcome.error));
  if (piece.is_receive) {
    if (auto accepted = accept(piece, static_cast<std::size_t>(outcome.bytes), vigil); !accepted) return accepted;
  }
  --*piece.left;
  return_stage(std::move(piece.stage));
  return {};
}

Result<void> MpiTransport::accept(const Piece& piece, std::size_t came, Vigil& vigil) {
  const Message& message = piece.message;
  if (came != piece.bytes) return vigil.differs(message.peer);
  if (piece.header == nullptr) return {};
  Header said = {};
  std::memcpy(&said, piece.header, sizeof said);
  if (said.signature != message.signature || said.bytes != message.bytes) return vigil.differs(message.peer);
  heads_[static_cast<std::size_t>(message.peer)] = false;
  if (piece.bytes > sizeof said && !piece.stage.empty()) {
    std::memcpy(message.data, piece.header + sizeof said, piece.bytes - sizeof said);
  }
  return {};
}

void MpiTransport::forget_finished() {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (pieces_[i].is_through) continue;
    if (kept != i) {
      pieces_[kept] = std::move(pieces_[i]);
      requests_[kept] = requests_[i];
    }
    ++kept;
  }
  pieces_.erase(pieces_.begin() + static_cast<std::ptrdiff_t>(kept), pieces_.end());
  requests_.resize(kept);
}

int MpiTransport::awaited() const noexcept {
  const auto receive = std::ranges::find_if(pieces_, &Piece::is_receive);
  if (receive != pieces_.end()) return receive->message.peer;
  return pieces_.empty() ? Vigil::anyone : pieces_.front().message.peer;
}

/// With a processor for each rank, spins a little; with fewer lets others have it at once. In the end it naps, as a
/// message may be begun long before the peer has its counterpart.
bool MpiTransport::rest(int idle) {
  constexpr int spins = 50;
  constexpr int yields = 20000;
  constexpr int looks_between_vigils = 8;
  constexpr auto nap = std::chrono::microseconds(100);
  if (!crowded_ && idle < spins) return false;
  if (idle >= yields) std::this_thread::sleep_for(nap);
  else if (!session_.yields()) std::this_thread::yield();
  return idle >= yields || idle % looks_between_vigils == 0;
}

/// The staged bytes may still be read by MPI: they live as long as it does.
void MpiTransport::give_up() noexcept {
  for (std::size_t i = 0; i < pieces_.size(); ++i) {
    if (pieces_[i].is_through) continue;
    session_.functions().give_up(&requests_[i], pieces_[i].is_receive ? 1 : 0);
    session_.keep(std::move(pieces_[i].stage));
  }
  pieces_.clear();
  requests_.clear();
  held_.clear();
}

}  // namespace amldist::collective
