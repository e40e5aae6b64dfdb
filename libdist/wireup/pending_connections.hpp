// Accepted connections whose peer has not introduced itself. Their number, bytes and time are bounded: see limits.hpp.
#pragma once

#include <poll.h>

#include <functional>
#include <list>
#include <vector>

#include "os/clock.hpp"
#include "os/file_descriptor.hpp"
#include "wireup/frame.hpp"
#include "wireup/limits.hpp"

namespace amldist::wireup {

class PendingConnections {
 public:
  /// `peers`: how many may connect in earnest, perhaps all at once.
  explicit PendingConnections(std::size_t peers) : most_(peers + limits.strangers) {}
  /// Takes a connection and its first frame.
  using GreetingHandler = std::function<void(FileDescriptor connection, Frame greeting)>;

  /// Adds what poll() is to wait for: size() entries.
  void add_to(std::vector<pollfd>& wanted) const;
  [[nodiscard]] std::size_t size() const noexcept { return connections_.size(); }
  /// When serve() must be called even if nothing comes.
  [[nodiscard]] Clock::time_point next_deadline() const noexcept;

  /// Accepts what waits at `listener`, without waiting itself.
  void accept_from(const FileDescriptor& listener, Clock::time_point now, const GreetingHandler& handler);
  /// Takes one accepted connection; where there are too many, the oldest is closed.
  void add(FileDescriptor connection, Clock::time_point now, const GreetingHandler& handler);
  /// Hands over the connections that have sent their greeting; closes those that are broken, closed or too slow.
  void serve(Clock::time_point now, const GreetingHandler& handler);

 private:
  struct Connection {
    FileDescriptor socket;
    Clock::time_point deadline;
    FrameReader reader{limits.greeting_bytes};
  };
  /// Whether the connection goes on waiting.
  static bool read(Connection& connection, const GreetingHandler& handler);

  std::size_t most_;
  std::list<Connection> connections_;  // the oldest first
};

}  // namespace amldist::wireup
