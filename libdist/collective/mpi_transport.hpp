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
  [[nodiscard]] Result<void> post(const Message& message, Direction direction, std::size_t& left,
                                  Vigil& vigil) override;
  [[nodiscard]] Result<bool> progress(Vigil& vigil) override;
  [[nodiscard]] int awaited() const noexcept override;
  bool rest(int idle) override;
  void give_up() noexcept override;

 private:
  using Stage = std::vector<std::byte>;
  /// One message of MPI's.
  struct Piece {
    Message message;
    std::size_t* left = nullptr;
    bool is_receive = false;
    bool is_through = false;
    Stage stage;  ///< header, and the data of a short message; empty: data alone, where the message has it
    amldist_mpi_handle request = 0;
  };

  [[nodiscard]] Result<void> post_piece(Piece piece, std::byte* data, std::size_t bytes, Vigil& vigil);
  [[nodiscard]] Result<void> accept(Piece& piece, Vigil& vigil);
  [[nodiscard]] Stage take_stage(std::size_t bytes);
  void return_stage(Stage stage);

  MpiSession& session_;
  const CommWatch& watch_;
  const int tag_;
  const std::size_t piece_;
  std::vector<Piece> pieces_;
  std::vector<Stage> stages_;  ///< to be used again
};

}  // namespace amldist::collective
