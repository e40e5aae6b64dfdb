// Messages over MPI's own: non-blocking sends and receives, so that every wait keeps its eye on the deadline.
//
// A message carries its signature and length in front of the data. Of a long one the first part does, and the rest
// follows in pieces that MPI's int can count. Where signatures are numbered (one for each call), only the first message
// of a call from one rank to another is signed: those behind it are of the same call, and come bare.
#pragma once

#include <vector>

#include "collective/control/comm_watch.hpp"
#include "collective/mpi/mpi_session.hpp"
#include "collective/transport/transport.hpp"

namespace amldist::collective {

class MpiTransport final : public Transport {
 public:
  static constexpr std::size_t longest_piece = 1UL << 30;

  enum class Signing : std::uint8_t { each_message, each_call };

  /// `tag` is this communicator's alone. Session and watch outlive this object. `near`: by rank, whether it is on this
  /// machine. `piece` is for tests.
  MpiTransport(MpiSession& session, const CommWatch& watch, int tag, Signing signing, bool oversubscribed,
               const std::vector<bool>& near, std::size_t piece = longest_piece)
      : session_(session), tag_(tag), signing_(signing), oversubscribed_(oversubscribed), piece_(piece) {
    for (std::size_t r = 0; r < near.size(); ++r) peers_.push_back({static_cast<int>(watch.members()[r]), near[r]});
  }

  [[nodiscard]] std::string_view name() const noexcept override { return "mpi"; }
  [[nodiscard]] std::size_t part_bytes() const noexcept override { return one_packet; }
  [[nodiscard]] bool serves_any_thread() const noexcept override { return session_.serves_any_thread(); }
  [[nodiscard]] Result<void> post(const Message& message, Direction direction, std::size_t& left,
                                  Watchdog& watchdog) override;
  [[nodiscard]] Result<bool> progress(Watchdog& watchdog) override;
  [[nodiscard]] int awaited() const noexcept override;
  bool rest(int idle) override;
  void give_up() noexcept override;

 private:
  using Stage = std::vector<std::byte>;
  /// Another rank.
  struct Peer {
    int rank = 0;            ///< in MPI_COMM_WORLD
    bool is_near = false;    ///< on this machine
    bool owes_head = false;  ///< a signature is under way that receives wait for
    std::uint32_t to = 0;    ///< what the last signed message to it was signed with
    std::uint32_t from = 0;
  };
  /// In front of a signed message.
  struct Header {
    std::uint64_t signature;
    std::uint64_t bytes;
  };
  /// One message of MPI's.
  struct Piece {
    std::size_t* left = nullptr;
    int peer = 0;
    bool is_receive = false;
    bool is_through = false;
    std::size_t bytes = 0;
    const std::byte* header = nullptr;  ///< of a signed message
    Header expected = {};               ///< there
    std::byte* data = nullptr;          ///< of a signed message that is received: where the data belongs
    Stage stage;                        ///< room for a header and the first part of the data: stays with the place
  };
  /// A message of a rank on this machine, from which on nothing is received until its signature has been seen: what is
  /// longer than its buffer, Open MPI copies whole there (ob1 with vader's or sm's single copy; seen in 4.1.4).
  struct Held {
    Message message;
    std::size_t* left;
    std::size_t at;
  };
  [[nodiscard]] bool is_first_of_call(Peer& peer, const Message& message, bool is_receive) const;
  [[nodiscard]] Peer& peer_of(const Message& message) { return peers_[static_cast<std::size_t>(message.peer)]; }
  [[nodiscard]] Result<void> release(Watchdog& watchdog);
  [[nodiscard]] Result<void> post_signed(Peer& peer, const Message& message, bool is_receive, std::size_t& left,
                                         Watchdog& watchdog);
  [[nodiscard]] Result<void> post_bare(const Message& message, bool is_receive, std::size_t& left, std::size_t at,
                                       Watchdog& watchdog);
  [[nodiscard]] Piece& next_piece(const Message& message, bool is_receive, std::size_t& left);
  /// Hands that piece to MPI: up to `reach` bytes from `data` on.
  [[nodiscard]] Result<void> begin(Piece& piece, std::byte* data, std::size_t reach, Watchdog& watchdog);
  [[nodiscard]] Result<void> finish(Piece& piece, const amldist_mpi_outcome& outcome, Watchdog& watchdog);
  [[nodiscard]] Result<void> accept(const Piece& piece, std::size_t came, Watchdog& watchdog);
  void forget_finished();

  MpiSession& session_;
  const int tag_;
  const Signing signing_;
  const bool oversubscribed_;  ///< fewer processors than ranks
  const std::size_t piece_;
  std::vector<Peer> peers_;  ///< by rank
  std::vector<Held> held_;
  std::vector<Piece> pieces_;                 ///< those under way, then places to be used again
  std::vector<amldist_mpi_handle> requests_;  ///< MPI's, of each piece
  std::size_t under_way_ = 0;                 ///< pieces
  bool is_sent_ = false;                      ///< a message was through when it was taken up
};

}  // namespace amldist::collective
