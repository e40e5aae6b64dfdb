// Connections to other ranks: bytes in and out, frames cut from them. Used by one thread at a time: by bootstrap, then
// by the control thread, which takes the connections over with whatever is on its way.
#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/os/file_descriptor.hpp"
#include "world/wireup/frame.hpp"
#include "world/wireup/handshake.hpp"
#include "world/wireup/limits.hpp"

namespace amldist::world {

/// One connection to a rank of the world.
struct FrameLink {
  FileDescriptor socket;
  world::FrameReader reader{world::limits.frame_bytes};
  std::string to_send;
  std::uint32_t rank = 0;  ///< of the world
  bool connecting = false;
  bool left = false;                                ///< said goodbye
  bool has_connected = false;                       ///< something was sent over this socket
  std::optional<world::JoinerHandshake> handshake;  ///< while the other side has not proven who it is
  std::string held;                                 ///< frames for after the handshake
  int attempts = 0;                                 ///< handshakes begun on behalf of this link

  /// For a socket that is being connected. Errors: unavailable, where the kernel gives no nonce.
  [[nodiscard]] Result<void> begin_handshake(const world::GroupKey& key, std::string join_request);
};

class FrameLinks {
 public:
  /// What comes in, and who has gone. Called from serve().
  struct Listener {
    std::function<void(FrameLink& link, world::Frame& frame)> on_frame;
    std::function<void(const FrameLink& link)> on_end;
    /// Begins a connection anew whose handshake did not end; false: it cannot. May be empty.
    std::function<bool(FrameLink& link)> restart = {};
  };
  using Links = std::vector<std::unique_ptr<FrameLink>>;

  explicit FrameLinks(Listener listener) : listener_(std::move(listener)) {}

  FrameLink& add(std::uint32_t rank, FileDescriptor connection);
  void add_all(Links links);
  /// Ends this object's use.
  [[nodiscard]] Links take_all() { return std::move(links_); }
  [[nodiscard]] const Links& all() const noexcept { return links_; }
  [[nodiscard]] FrameLink* find(std::uint32_t rank);

  /// Adds what poll() is to wait for: as many entries as all().
  void add_to(std::vector<pollfd>& wanted) const;
  /// Moves what can be moved, after poll() on what add_to() gave.
  void serve(std::span<const pollfd> polled);
  /// Reads what has come from a rank until now, if there is a connection to it.
  void read_from_rank(std::uint32_t rank);
  /// Forgets the closed ones.
  void sweep();

  static void send(FrameLink& link, std::string_view frame);

 private:
  void read_from(FrameLink& link);
  static void write_to(FrameLink& link);
  void take_challenge(FrameLink& link);
  void drop(FrameLink& link) const;

  Listener listener_;
  Links links_;
};

}  // namespace amldist::world
