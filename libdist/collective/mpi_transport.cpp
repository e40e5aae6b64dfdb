#include "collective/mpi_transport.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

namespace amldist::collective {
namespace {

struct Header {
  std::uint64_t signature;
  std::uint64_t bytes;
};

/// Up to here a copy is cheaper than a second message.
constexpr std::size_t longest_short = 4096;

/// In `staged_`, for header and data of a short message, or the header of another; keeps headers aligned.
std::size_t staged_size(const Message& message) noexcept {
  const std::size_t bytes = sizeof(Header) + (message.bytes <= longest_short ? message.bytes : 0);
  return (bytes + alignof(Header) - 1) / alignof(Header) * alignof(Header);
}

}  // namespace

Result<void> MpiTransport::exchange(std::span<const Message> sends, std::span<const Message> receives, Vigil& vigil) {
  std::size_t needed = 0;
  for (const auto list : {sends, receives}) {
    for (const Message& message : list) needed += staged_size(message);
  }
  if (staged_.size() < needed) staged_.resize(needed);
  staged_bytes_ = 0;
  pieces_.clear();
  const auto post_all = [&]() -> Result<void> {
    for (const Message& message : receives) {
      if (auto posted = post(message, true, vigil); !posted) return posted;
    }
    for (const Message& message : sends) {
      if (auto posted = post(message, false, vigil); !posted) return posted;
    }
    return {};
  };
  auto result = post_all();
  if (result) result = wait(vigil);
  if (!result) give_up();
  return result;
}

Result<void> MpiTransport::post(const Message& message, bool is_receive, Vigil& vigil) {
  std::byte* const header = staged_.data() + staged_bytes_;
  staged_bytes_ += staged_size(message);
  const bool is_short = message.bytes <= longest_short;
  if (!is_receive) {
    const Header said = {message.signature, message.bytes};
    std::memcpy(header, &said, sizeof said);
    if (is_short && message.bytes != 0) std::memcpy(header + sizeof said, message.data, message.bytes);
  }
  const std::size_t first = sizeof(Header) + (is_short ? message.bytes : 0);
  if (auto posted = post_piece({&message, is_receive, header, 0}, header, first, vigil); !posted) return posted;
  if (is_short) return {};
  for (std::size_t at = 0; at < message.bytes; at += piece_) {
    const std::size_t bytes = std::min(piece_, message.bytes - at);
    if (auto posted = post_piece({&message, is_receive, nullptr, 0}, message.data + at, bytes, vigil); !posted) {
      return posted;
    }
  }
  return {};
}

Result<void> MpiTransport::post_piece(Piece piece, std::byte* data, std::size_t bytes, Vigil& vigil) {
  const auto& mpi = session_.functions();
  const int peer = static_cast<int>(watch_.members()[static_cast<std::size_t>(piece.message->peer)]);
  const int count = static_cast<int>(bytes);
  const int error = piece.is_receive ? mpi.receive(session_.comm(), data, count, peer, tag_, &piece.request)
                                     : mpi.send(session_.comm(), data, count, peer, tag_, &piece.request);
  if (error != 0) return vigil.lost(piece.message->peer, session_.error_text(error));
  pieces_.push_back(piece);
  return {};
}

Result<bool> MpiTransport::progress(Vigil& vigil) {
  bool any = false;
  for (Piece& piece : pieces_) {
    int done = 0;
    const int error = session_.functions().test(&piece.request, &done);
    // What came is longer than what is expected: another call's.
    if (error != 0 && piece.is_receive) return vigil.differs(piece.message->peer);
    if (error != 0) return vigil.lost(piece.message->peer, session_.error_text(error));
    if (done == 0) continue;
    any = true;
    if (auto accepted = accept(piece, vigil); !accepted) return accepted.error();
    piece.message = nullptr;
  }
  std::erase_if(pieces_, [](const Piece& piece) { return piece.message == nullptr; });
  return any;
}

Result<void> MpiTransport::accept(const Piece& piece, Vigil& vigil) {
  if (!piece.is_receive || piece.header == nullptr) return {};
  const Message& message = *piece.message;
  Header said = {};
  std::memcpy(&said, piece.header, sizeof said);
  if (said.signature != message.signature || said.bytes != message.bytes) return vigil.differs(message.peer);
  if (message.bytes != 0 && message.bytes <= longest_short) {
    std::memcpy(message.data, piece.header + sizeof said, message.bytes);
  }
  return {};
}

/// Spins a little, then lets others have the processor: there may be more ranks than processors.
Result<void> MpiTransport::wait(Vigil& vigil) {
  constexpr int spins = 50;
  for (int idle = 0; !pieces_.empty(); ++idle) {
    const auto moved = progress(vigil);
    if (!moved) return moved.error();
    if (*moved) idle = 0;
    if (idle < spins || pieces_.empty()) continue;
    const auto receive = std::ranges::find_if(pieces_, [](const Piece& piece) { return piece.is_receive; });
    const Piece& awaited = receive != pieces_.end() ? *receive : pieces_.front();
    if (auto going_on = vigil.keep_waiting(awaited.message->peer); !going_on) return going_on;
    std::this_thread::yield();
  }
  return {};
}

/// The staged bytes may still be read by MPI: they live as long as it does.
void MpiTransport::give_up() {
  for (Piece& piece : pieces_) {
    if (piece.message != nullptr) session_.functions().give_up(&piece.request, piece.is_receive ? 1 : 0);
  }
  pieces_.clear();
  session_.keep(std::exchange(staged_, {}));
}

}  // namespace amldist::collective
