// Messages over MPI's own: non-blocking sends and receives, so that every wait keeps its eye on the deadline.
//
// A short message carries its signature and length in front of the data. A longer one is preceded by a message with
// these two alone, and goes in pieces that MPI's int can count.
#pragma once

#include <vector>

#include "collective/comm_watch.hpp"
#include "collective/mpi_session.hpp"
#include "collective/transport.hpp"

namespace amldist::collective {

class MpiTransport final : public Transport {
 public:
  static constexpr std::size_t longest_piece = 1UL << 30;

  /// `tag` is this communicator's alone. Session and watch outlive this object. `piece` is for tests.
  MpiTransport(MpiSession& session, const CommWatch& watch, int tag, std::size_t piece = longest_piece)
      : session_(session), watch_(watch), tag_(tag), piece_(piece) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "mpi"; }
  [[nodiscard]] bool serves_any_thread() const noexcept override { return session_.serves_any_thread(); }
  [[nodiscard]] Result<void> exchange(std::span<const Message> sends, std::span<const Message> receives,
                                      Vigil& vigil) override;

 private:
  /// One message of MPI's.
  struct Piece {
    const Message* message = nullptr;
    bool is_receive = false;
    std::byte* header = nullptr;  ///< in `staged_`; nullptr: data alone
    amldist_mpi_handle request = 0;
  };

  [[nodiscard]] Result<void> post(const Message& message, bool is_receive, Vigil& vigil);
  [[nodiscard]] Result<void> post_piece(Piece piece, std::byte* data, std::size_t bytes, Vigil& vigil);
  /// Looks at all pieces once; whether any came to its end.
  [[nodiscard]] Result<bool> progress(Vigil& vigil);
  [[nodiscard]] Result<void> accept(const Piece& piece, Vigil& vigil);
  [[nodiscard]] Result<void> wait(Vigil& vigil);
  void give_up();

  MpiSession& session_;
  const CommWatch& watch_;
  const int tag_;
  const std::size_t piece_;
  std::vector<Piece> pieces_;
  std::vector<std::byte> staged_;  ///< headers, and short messages
  std::size_t staged_bytes_ = 0;
};

}  // namespace amldist::collective
