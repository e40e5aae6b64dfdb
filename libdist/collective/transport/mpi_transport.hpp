// Messages over MPI: non-blocking sends and receives, so that every wait can check the deadline.
//
// A message begins with its signature and length. Of a long message only the first part has them; the rest follows in
// pieces that fit MPI's int counts. If signatures are numbered (one per call), only the first message of a call from
// one rank to another has one; the others belong to the same call and have no header.
#pragma once

#include <vector>

#include "collective/transport/transport.hpp"
#include "world/control/comm_watch.hpp"
#include "world/mpi/mpi_session.hpp"

namespace amldist::collective {

class MpiTransport final : public Transport {
 public:
  static constexpr std::size_t longest_piece = 1UL << 30;

  enum class Signing : std::uint8_t { each_message, each_call };

  /// Only this communicator uses `tag`. Session and watch outlive this object. `near`: by rank, whether it is on this
  /// machine. `piece` is for tests.
  MpiTransport(world::MpiSession& session, const world::CommWatch& watch, int tag, Signing signing, bool oversubscribed,
               const std::vector<bool>& near, std::size_t piece = longest_piece)
      : session_(session), tag_(tag), signing_(signing), oversubscribed_(oversubscribed), piece_(piece) {
    for (std::size_t r = 0; r < near.size(); ++r) peers_.push_back({static_cast<int>(watch.members()[r]), near[r]});
  }

  [[nodiscard]] std::string_view name() const noexcept override { return "mpi"; }
  [[nodiscard]] std::size_t part_bytes() const noexcept override { return one_packet; }
  [[nodiscard]] bool serves_any_thread() const noexcept override { return session_.serves_any_thread(); }
  [[nodiscard]] Result<void> post(const Message& message, Direction direction, std::size_t& left,
                                  calls::Watchdog& watchdog) override;
  /// MPI may be called by any thread then, also by one that only begins a message.
  [[nodiscard]] bool posts_at_once(int /*peer*/, int /*tag*/) const noexcept override { return serves_any_thread(); }
  [[nodiscard]] Result<bool> progress(calls::Watchdog& watchdog) override;
  [[nodiscard]] int awaited() const noexcept override;
  bool rest(int idle) override;
  void give_up() noexcept override;

 private:
  using Stage = std::vector<std::byte>;
  /// Another rank.
  struct Peer {
    int rank = 0;            ///< in MPI_COMM_WORLD
    bool is_near = false;    ///< on this machine
    bool owes_head = false;  ///< receives wait for a signature that is under way
    std::uint32_t to = 0;    ///< signature of the last signed message to it
    std::uint32_t from = 0;
  };
  /// Precedes a signed message.
  struct Header {
    std::uint64_t signature;
    std::uint64_t bytes;
  };
  /// One message of MPI's: a message is sent in one or more of them.
  struct Piece {
    std::size_t* left = nullptr;
    int peer = 0;
    bool is_receive = false;
    bool is_through = false;
    std::size_t bytes = 0;
    const std::byte* header = nullptr;  ///< of a signed message
    Header expected = {};               ///< expected at `header`
    std::byte* data = nullptr;          ///< of a received signed message: destination of its data
    Stage stage;  ///< staging buffer for a header and the first part of the data; kept when the piece is reused
  };
  /// A receive from a rank on this machine that waits until its signature has been seen: if a message is longer than
  /// its buffer, Open MPI overruns the buffer (ob1 with the single copy of vader or sm; seen in 4.1.4).
  struct Held {
    Message message;
    std::size_t* left;
    std::size_t at;
  };
  [[nodiscard]] bool is_first_of_call(Peer& peer, const Message& message, bool is_receive) const;
  [[nodiscard]] Peer& peer_of(const Message& message) { return peers_[static_cast<std::size_t>(message.peer)]; }
  [[nodiscard]] Result<void> release(calls::Watchdog& watchdog);
  [[nodiscard]] Result<void> post_signed(Peer& peer, const Message& message, bool is_receive, std::size_t& left,
                                         calls::Watchdog& watchdog);
  [[nodiscard]] Result<void> post_bare(const Message& message, bool is_receive, std::size_t& left, std::size_t at,
                                       calls::Watchdog& watchdog);
  [[nodiscard]] Piece& next_piece(const Message& message, bool is_receive, std::size_t& left);
  /// Passes the piece to MPI: up to `reach` bytes from `data` on.
  [[nodiscard]] Result<void> begin(Piece& piece, std::byte* data, std::size_t reach, calls::Watchdog& watchdog);
  [[nodiscard]] Result<void> finish(Piece& piece, const amldist_mpi_outcome& outcome, calls::Watchdog& watchdog);
  [[nodiscard]] Result<void> accept(const Piece& piece, std::size_t came, calls::Watchdog& watchdog);
  void forget_finished();

  world::MpiSession& session_;
  const int tag_;
  const Signing signing_;
  const bool oversubscribed_;  ///< fewer processors than ranks
  const std::size_t piece_;
  std::vector<Peer> peers_;  ///< by rank
  std::vector<Held> held_;
  std::vector<Piece> pieces_;                 ///< pieces under way, then pieces for reuse
  std::vector<amldist_mpi_handle> requests_;  ///< MPI's, of each piece
  std::size_t under_way_ = 0;                 ///< pieces
  bool is_sent_ = false;                      ///< a message was complete when it was posted
};

}  // namespace amldist::collective
