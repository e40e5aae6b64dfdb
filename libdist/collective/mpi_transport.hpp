// Messages over MPI's own: non-blocking sends and receives, so that every wait keeps its eye on the deadline.
//
// A message carries its signature and length in front of the data. Of a long one the first part does, and the rest
// follows in pieces that MPI's int can count. Where signatures are numbered (one for each call), only the first message
// of a call from one rank to another is signed: those behind it are of the same call, and come bare.
#pragma once

#include <vector>

#include "collective/comm_watch.hpp"
#include "collective/mpi_session.hpp"
#include "collective/transport.hpp"

namespace amldist::collective {

class MpiTransport final : public Transport {
 public:
  static constexpr std::size_t longest_piece = 1UL << 30;

  enum class Signing : std::uint8_t { each_message, each_call };

  /// `tag` is this communicator's alone. Session and watch outlive this object. `near`: by rank, whether it is on this
  /// machine. `piece` is for tests.
  MpiTransport(MpiSession& session, const CommWatch& watch, int tag, Signing signing, bool crowded,
               std::vector<bool> near, std::size_t piece = longest_piece)
      : session_(session),
        watch_(watch),
        tag_(tag),
        signing_(signing),
        crowded_(crowded),
        piece_(piece),
        near_(std::move(near)),
        heads_(watch.members().size()),
        signed_(signing == Signing::each_call ? watch.members().size() : 0) {}

  [[nodiscard]] std::string_view name() const noexcept override { return "mpi"; }
  [[nodiscard]] std::size_t part_bytes() const noexcept override { return one_packet; }
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
    Stage stage;  ///< header, and the first part of the data; empty: data alone, where the message has it
    const std::byte* header = nullptr;  ///< of a signed message
    std::size_t bytes = 0;
    std::size_t room = 0;  ///< what may be received, where that is more
  };
  /// A message of a rank on this machine, from which on nothing is received until its signature has been seen: what is
  /// longer than its buffer, Open MPI copies whole there (ob1 with vader's or sm's single copy; seen in 4.1.4).
  struct Held {
    Message message;
    std::size_t* left;
    std::size_t at;
  };
  /// What the last signed message to and from a rank was signed with.
  struct Signatures {
    std::uint32_t to = 0;
    std::uint32_t from = 0;
  };

  [[nodiscard]] bool is_first_of_call(const Message& message, bool is_receive);
  [[nodiscard]] Result<void> post_from(const Message& message, bool is_receive, std::size_t& left, std::size_t at,
                                       Vigil& vigil);
  [[nodiscard]] bool is_held_up(const Message& message) const {
    return heads_[static_cast<std::size_t>(message.peer)];
  }
  void hold(const Message& message, std::size_t& left, std::size_t at);
  [[nodiscard]] Result<void> release(Vigil& vigil);
  [[nodiscard]] Result<void> post_signed(const Message& message, bool is_receive, std::size_t& left, Vigil& vigil);
  [[nodiscard]] Result<void> post_piece(Piece&& piece, std::byte* data, Vigil& vigil);
  [[nodiscard]] Result<void> finish(Piece& piece, const amldist_mpi_outcome& outcome, Vigil& vigil);
  [[nodiscard]] Result<void> accept(const Piece& piece, std::size_t came, Vigil& vigil);
  void forget_finished();
  [[nodiscard]] Stage take_stage(std::size_t bytes);
  void return_stage(Stage stage);

  MpiSession& session_;
  const CommWatch& watch_;
  const int tag_;
  const Signing signing_;
  const bool crowded_;  ///< fewer processors than ranks
  const std::size_t piece_;
  const std::vector<bool> near_;  ///< by rank
  std::vector<bool> heads_;       ///< by rank: a signature is under way that receives wait for
  std::vector<Held> held_;
  std::vector<Piece> pieces_;
  std::vector<amldist_mpi_handle> requests_;  ///< MPI's, of each piece
  std::vector<Signatures> signed_;            ///< by rank
  std::vector<Stage> stages_;                 ///< to be used again
};

}  // namespace amldist::collective
