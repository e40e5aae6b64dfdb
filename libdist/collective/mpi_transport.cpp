#include "collective/mpi_transport.hpp"

#include <algorithm>
#include <cstring>
#include <thread>

namespace amldist::collective {
namespace {

struct Header {
  std::uint64_t signature;
  std::uint64_t bytes;
};

/// Up to here a copy is cheaper than a second message.
constexpr std::size_t longest_short = 32768;

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

Result<void> MpiTransport::post(const Message& message, Direction direction, std::size_t& left, Vigil& vigil) {
  const bool is_receive = direction == Direction::receive;
  const bool is_short = message.bytes <= longest_short;
  const std::size_t first = sizeof(Header) + (is_short ? message.bytes : 0);
  Piece head = {message, &left, is_receive, false, take_stage(first), 0};
  if (!is_receive) {
    const Header said = {message.signature, message.bytes};
    std::memcpy(head.stage.data(), &said, sizeof said);
    if (is_short && message.bytes != 0) std::memcpy(head.stage.data() + sizeof said, message.data, message.bytes);
  }
  std::byte* const staged = head.stage.data();  // stays where it is when its owner moves
  if (auto posted = post_piece(std::move(head), staged, first, vigil); !posted) return posted;
  if (is_short) return {};
  for (std::size_t at = 0; at < message.bytes; at += piece_) {
    const std::size_t bytes = std::min(piece_, message.bytes - at);
    Piece piece = {message, &left, is_receive, false, {}, 0};
    if (auto posted = post_piece(std::move(piece), message.data + at, bytes, vigil); !posted) return posted;
  }
  return {};
}

Result<void> MpiTransport::post_piece(Piece piece, std::byte* data, std::size_t bytes, Vigil& vigil) {
  const auto& mpi = session_.functions();
  const int peer = static_cast<int>(watch_.members()[static_cast<std::size_t>(piece.message.peer)]);
  const int count = static_cast<int>(bytes);
  const int error = piece.is_receive ? mpi.receive(session_.comm(), data, count, peer, tag_, &piece.request)
                                     : mpi.send(session_.comm(), data, count, peer, tag_, &piece.request);
  if (error != 0) return vigil.lost(piece.message.peer, session_.error_text(error));
  ++*piece.left;
  pieces_.push_back(std::move(piece));
  return {};
}

Result<bool> MpiTransport::progress(Vigil& vigil) {
  bool any = false;
  for (Piece& piece : pieces_) {
    int done = 0;
    const int error = session_.functions().test(&piece.request, &done);
    // What came is longer than what is expected: another call's.
    if (error != 0 && piece.is_receive) return vigil.differs(piece.message.peer);
    if (error != 0) return vigil.lost(piece.message.peer, session_.error_text(error));
    if (done == 0) continue;
    any = piece.is_through = true;
    if (auto accepted = accept(piece, vigil); !accepted) return accepted.error();
    --*piece.left;
    return_stage(std::move(piece.stage));
  }
  if (any) std::erase_if(pieces_, [](const Piece& piece) { return piece.is_through; });
  return any;
}

Result<void> MpiTransport::accept(Piece& piece, Vigil& vigil) {
  if (!piece.is_receive || piece.stage.empty()) return {};
  const Message& message = piece.message;
  Header said = {};
  std::memcpy(&said, piece.stage.data(), sizeof said);
  if (said.signature != message.signature || said.bytes != message.bytes) return vigil.differs(message.peer);
  if (message.bytes != 0 && message.bytes <= longest_short) {
    std::memcpy(message.data, piece.stage.data() + sizeof said, message.bytes);
  }
  return {};
}

int MpiTransport::awaited() const noexcept {
  const auto receive = std::ranges::find_if(pieces_, &Piece::is_receive);
  if (receive != pieces_.end()) return receive->message.peer;
  return pieces_.empty() ? Vigil::anyone : pieces_.front().message.peer;
}

/// Spins a little, then lets others have the processor: there may be more ranks than processors. In the end it naps, as
/// a message may be begun long before the peer has its counterpart.
bool MpiTransport::rest(int idle) {
  constexpr int spins = 50;
  constexpr int yields = 20000;
  constexpr auto nap = std::chrono::microseconds(100);
  if (idle < spins) return false;
  if (idle < yields) std::this_thread::yield();
  else std::this_thread::sleep_for(nap);
  return true;
}

/// The staged bytes may still be read by MPI: they live as long as it does.
void MpiTransport::give_up() noexcept {
  for (Piece& piece : pieces_) {
    if (piece.is_through) continue;
    session_.functions().give_up(&piece.request, piece.is_receive ? 1 : 0);
    session_.keep(std::move(piece.stage));
  }
  pieces_.clear();
}

}  // namespace amldist::collective
