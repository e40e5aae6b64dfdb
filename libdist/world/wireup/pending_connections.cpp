#include "world/wireup/pending_connections.hpp"

#include <algorithm>

#include "base/net/socket.hpp"
#include "world/wireup/join_request.hpp"

namespace amldist::world {

void PendingConnections::add_to(std::vector<pollfd>& wanted) const {
  for (const Connection& each : connections_) wanted.push_back({each.socket.get(), POLLIN, 0});
}

Clock::time_point PendingConnections::next_deadline() const noexcept {
  auto earliest = Clock::time_point::max();
  for (const Connection& each : connections_) earliest = std::min(earliest, each.deadline());
  return earliest;
}

void PendingConnections::accept_from(const FileDescriptor& listener, Clock::time_point now,
                                     const JoinRequestHandler& handler) {
  for (std::size_t i = 0; i < most_; ++i) {  // after that, the other connections have their turn
    FileDescriptor connection = accept_on(listener);
    if (!connection) return;
    add(std::move(connection), now, handler);
  }
}

void PendingConnections::add(FileDescriptor connection, Clock::time_point now, const JoinRequestHandler& handler) {
  // The hello of a genuine peer has usually arrived already.
  Connection added{std::move(connection), now};
  if (!read(added, handler)) return;
  if (connections_.size() >= most_) close_one();
  connections_.push_back(std::move(added));
}

void PendingConnections::close_one() {
  const auto is_silent = [](const Connection& each) {
    return each.handshake.state() == HostHandshake::State::waits_for_hello;
  };
  auto chosen = std::ranges::find_if(connections_, is_silent);
  if (chosen == connections_.end()) {
    chosen = std::ranges::find_if(connections_, [](const Connection& each) { return !each.handshake.has_proven(); });
  }
  if (chosen != connections_.end()) connections_.erase(chosen);
}

void PendingConnections::serve(Clock::time_point now, const JoinRequestHandler& handler) {
  for (auto each = connections_.begin(); each != connections_.end();) {
    const bool stays = read(*each, handler) && now < each->deadline();
    each = stays ? std::next(each) : connections_.erase(each);
  }
}

bool PendingConnections::read(Connection& connection, const JoinRequestHandler& handler) {
  for (;;) {
    const auto state = connection.reader.read(connection.socket);
    if (state == FrameReader::State::incomplete) return true;
    if (state != FrameReader::State::complete || !advance(connection, handler)) return false;
  }
}

bool PendingConnections::advance(Connection& connection, const JoinRequestHandler& handler) {
  using State = HostHandshake::State;
  HostHandshake& handshake = connection.handshake;
  // What is sent fits into the socket's buffer: a stranger that does not read cannot delay the others.
  const auto send = [&](const std::string& frame) { return send_all(connection.socket, frame, Clock::now()).ok(); };
  const std::string reply = handshake.take(group_, connection.reader.take(), Ends::as_host(connection.socket));
  switch (handshake.state()) {
    case State::complete:
      handler(std::move(connection.socket), handshake.join_request());
      return false;
    case State::elsewhere:
      static_cast<void>(send(elsewhere_frame()));
      return false;
    case State::stranger:
      return false;
    default:
      connection.reader = FrameReader(handshake.most_bytes());
      return reply.empty() || send(reply);
  }
}

}  // namespace amldist::world
