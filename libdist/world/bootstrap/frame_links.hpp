// Connections to other ranks: sends and receives bytes and cuts frames from them. Used by one thread at a time: by
// bootstrap, then by the control thread, which takes over the connections with all unread and unsent bytes.
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
  bool has_connected = false;                       ///< some bytes were sent over this socket
  std::optional<world::JoinerHandshake> handshake;  ///< until the other side has proven its identity
  std::string held;                                 ///< frames to be sent after the handshake
  int attempts = 0;                                 ///< handshakes begun on behalf of this link

  /// For a socket that is being connected. Errors: unavailable if the kernel gives no nonce.
  [[nodiscard]] Result<void> begin_handshake(const world::GroupKey& key, std::string join_request);
};

class FrameLinks {
 public:
  /// Receives frames, and the ranks whose connection has ended. Called from serve().
  struct Listener {
    std::function<void(FrameLink& link, world::Frame& frame)> on_frame;
    std::function<void(const FrameLink& link)> on_end;
    /// Restarts a connection whose handshake did not end; returns false if it cannot. May be empty.
    std::function<bool(FrameLink& link)> restart = {};
  };
  using Links = std::vector<std::unique_ptr<FrameLink>>;

  explicit FrameLinks(Listener listener) : listener_(std::move(listener)) {}

  FrameLink& add(std::uint32_t rank, FileDescriptor connection);
  void add_all(Links links);
  /// This object must not be used afterwards.
  [[nodiscard]] Links take_all() { return std::move(links_); }
  [[nodiscard]] const Links& all() const noexcept { return links_; }
  [[nodiscard]] FrameLink* find(std::uint32_t rank);

  /// Adds the entries that poll() must watch: as many as all() has.
  void add_to(std::vector<pollfd>& wanted) const;
  /// Sends and receives what is possible, after poll() on the entries of add_to().
  void serve(std::span<const pollfd> polled);
  /// Reads what has arrived from a rank, if there is a connection to it.
  void read_from_rank(std::uint32_t rank);
  /// Removes the closed connections.
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
