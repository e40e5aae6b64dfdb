// The control connections of this process: bytes in and out, frames cut from them. Used by the control thread alone.
#pragma once

#include <poll.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collective/bootstrap/world.hpp"
#include "collective/control/control_frame.hpp"
#include "wireup/handshake.hpp"
#include "wireup/pending_connections.hpp"

namespace amldist::collective {

/// One connection to a rank of the world.
struct ControlLink {
  FileDescriptor socket;
  wireup::FrameReader reader{wireup::limits.frame_bytes};
  std::string to_send;
  std::uint32_t rank = 0;  ///< of the world
  bool connecting = false;
  bool has_connected = false;
  bool left = false;                                 ///< said goodbye
  std::optional<wireup::JoinerHandshake> handshake;  ///< while the other side has not proven who it is
  std::string held;                                  ///< frames for after the handshake
  int attempts = 0;                                  ///< handshakes begun on behalf of this link

  void queue(const std::string& frame) { (handshake ? held : to_send) += frame; }
};

class ControlLinks {
 public:
  /// What comes in, and who has gone: without a goodbye its process has ended. Called from serve() and accept_all().
  struct Listener {
    wireup::PendingConnections::GreetingHandler on_greeting;  ///< the first frame of a new connection
    std::function<void(ControlLink& link, Frame& frame)> on_frame;
    std::function<void(std::uint32_t world_rank, bool left)> on_end;
  };

  /// Takes the world's connections over; `world` outlives this object.
  ControlLinks(World& world, Listener listener);

  /// Adds what poll() is to wait for.
  void add_to(std::vector<pollfd>& wanted) const;
  /// Moves what can be moved, after poll() on what add_to() gave.
  void serve(std::span<const pollfd> polled);
  void accept_all();
  /// What later connections of the world prove.
  [[nodiscard]] const wireup::GroupKey& key() const noexcept { return key_; }
  /// Takes a connection whose peer has said which rank it is.
  void add(std::uint32_t world_rank, FileDescriptor connection);
  /// When serve() must be called even if nothing comes.
  [[nodiscard]] Clock::time_point next_deadline() const noexcept { return pending_.next_deadline(); }
  /// Forgets the closed ones.
  void sweep();

  /// Sends to a rank, over a new connection where there is none. False: it does not listen any more.
  [[nodiscard]] bool send_to(std::uint32_t world_rank, const std::string& frame);
  /// To every rank that is connected, but one.
  void send_to_all_but(std::uint32_t world_rank, const std::string& frame);
  void say_goodbye();
  /// Whether something waits to be sent, perhaps for the end of a handshake.
  [[nodiscard]] bool has_unsent() const noexcept;

 private:
  void read_from(ControlLink& link);
  void write_to(ControlLink& link);
  void take_challenge(ControlLink& link);
  /// Begins connection and handshake. False: the rank does not listen any more.
  [[nodiscard]] bool start(ControlLink& link);
  void drop(ControlLink& link);
  [[nodiscard]] ControlLink* find(std::uint32_t world_rank);

  World& world_;
  wireup::GroupKey key_;
  Listener listener_;
  std::vector<std::unique_ptr<ControlLink>> links_;
  wireup::PendingConnections pending_;
};

}  // namespace amldist::collective
