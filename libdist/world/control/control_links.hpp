// The control connections of this process: those of the world's tree, which bootstrap made, and those that were made
// since because something was to be sent. Used by the control thread alone.
#pragma once

#include <poll.h>

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "world/bootstrap/world.hpp"
#include "world/control/control_frame.hpp"
#include "world/wireup/handshake.hpp"
#include "world/wireup/pending_connections.hpp"

namespace amldist::world {

using ControlLink = FrameLink;

class ControlLinks {
 public:
  /// What comes in, and who has gone: without a goodbye its process has ended. Called from serve() and accept_all().
  struct Listener {
    world::PendingConnections::JoinRequestHandler on_join_request;  ///< the first frame of a new connection
    world::PendingConnections::JoinRequestHandler on_latecomer;     ///< the same of a process that comes too late
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
  /// Reads what has come from a rank until now.
  void read_from_rank(std::uint32_t world_rank) { links_.read_from_rank(world_rank); }
  /// What later connections of the world prove.
  [[nodiscard]] const world::GroupKey& key() const noexcept { return key_; }
  /// Takes a connection whose peer has said which rank it is.
  void add(std::uint32_t world_rank, FileDescriptor connection) { links_.add(world_rank, std::move(connection)); }
  /// When serve() must be called even if nothing comes.
  [[nodiscard]] Clock::time_point next_deadline() const noexcept;
  /// Forgets the closed ones.
  void sweep() { links_.sweep(); }

  /// Sends to a rank, over a new connection where there is none. False: it does not listen any more.
  [[nodiscard]] bool send_to(std::uint32_t world_rank, const std::string& frame);
  /// `all`: everybody leaves together, so nobody needs to be told.
  void say_goodbye(bool all);
  /// Whether something waits to be sent to a rank but those of `left_out`, perhaps for the end of a handshake.
  [[nodiscard]] bool has_unsent(const std::function<bool(std::uint32_t world_rank)>& left_out) const;

 private:
  /// Begins connection and handshake. Errors: unavailable, when the rank does not listen any more; limit.
  [[nodiscard]] Result<void> start(ControlLink& link);

  World& world_;
  world::GroupKey key_;
  Listener listener_;
  FrameLinks links_;
  world::PendingConnections pending_;
  std::optional<world::PendingConnections> latecomers_;  ///< of processes that come too late
};

}  // namespace amldist::world
