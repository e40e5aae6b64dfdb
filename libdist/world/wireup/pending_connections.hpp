// Accepted connections whose peer has not yet proven that it belongs to the group, or has not introduced itself. Their
// number, bytes and time are bounded: see limits.hpp.
#pragma once

#include <poll.h>

#include <functional>
#include <list>
#include <vector>

#include "base/os/file_descriptor.hpp"
#include "base/time/clock.hpp"
#include "world/wireup/frame.hpp"
#include "world/wireup/handshake.hpp"
#include "world/wireup/limits.hpp"

namespace amldist::world {

class PendingConnections {
 public:
  /// `peers`: how many genuine peers may connect, perhaps all at once.
  PendingConnections(std::size_t peers, GroupKey group) : most_(peers + limits.strangers), group_(std::move(group)) {}
  /// Takes a connection whose peer has proven that it belongs to the group, and its join request.
  using JoinRequestHandler = std::function<void(FileDescriptor connection, Frame join_request)>;

  /// Adds the entries that poll() must watch: size() of them.
  void add_to(std::vector<pollfd>& wanted) const;
  [[nodiscard]] std::size_t size() const noexcept { return connections_.size(); }
  /// When serve() must be called even if nothing arrives.
  [[nodiscard]] Clock::time_point next_deadline() const noexcept;

  /// Accepts the connections that wait at `listener`, without waiting itself.
  void accept_from(const FileDescriptor& listener, Clock::time_point now, const JoinRequestHandler& handler);
  /// Takes one accepted connection. If there are too many, one is closed: the oldest that has sent nothing, else the
  /// oldest that has proven nothing.
  void add(FileDescriptor connection, Clock::time_point now, const JoinRequestHandler& handler);
  /// Advances every handshake. Passes on the connections that have sent their join request; closes those that are
  /// broken, closed or too slow.
  void serve(Clock::time_point now, const JoinRequestHandler& handler);

 private:
  struct Connection {
    FileDescriptor socket;
    Clock::time_point accepted;
    FrameReader reader{limits.proof_bytes};
    HostHandshake handshake = {};
    [[nodiscard]] Clock::time_point deadline() const noexcept {
      return accepted + (handshake.has_proven() ? limits.join_request_time : limits.proof_time);
    }
  };
  /// Whether the connection keeps waiting.
  bool read(Connection& connection, const JoinRequestHandler& handler);
  /// Whether the handshake continues.
  bool advance(Connection& connection, const JoinRequestHandler& handler);
  void close_one();

  std::size_t most_;
  GroupKey group_;
  std::list<Connection> connections_;  // oldest first
};

}  // namespace amldist::world
