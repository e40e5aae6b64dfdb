#include "wireup/pending_connections.hpp"

#include "os/socket.hpp"

namespace amldist::wireup {

void PendingConnections::add_to(std::vector<pollfd>& wanted) const {
  for (const Connection& each : connections_) wanted.push_back({each.socket.get(), POLLIN, 0});
}

Clock::time_point PendingConnections::next_deadline() const noexcept {
  return connections_.empty() ? Clock::time_point::max() : connections_.front().deadline;
}

void PendingConnections::accept_from(const FileDescriptor& listener, Clock::time_point now,
                                     const GreetingHandler& handler) {
  for (std::size_t i = 0; i < most_; ++i) {  // then the others have their turn
    FileDescriptor connection = accept_on(listener);
    if (!connection) return;
    add(std::move(connection), now, handler);
  }
}

void PendingConnections::add(FileDescriptor connection, Clock::time_point now, const GreetingHandler& handler) {
  // The greeting of a peer that connects in earnest is mostly there already.
  Connection added{std::move(connection), now + limits.greeting_time};
  if (!read(added, handler)) return;
  if (connections_.size() >= most_) connections_.pop_front();
  connections_.push_back(std::move(added));
}

void PendingConnections::serve(Clock::time_point now, const GreetingHandler& handler) {
  for (auto each = connections_.begin(); each != connections_.end();) {
    const bool stays = read(*each, handler) && now < each->deadline;
    each = stays ? std::next(each) : connections_.erase(each);
  }
}

bool PendingConnections::read(Connection& connection, const GreetingHandler& handler) {
  const auto state = connection.reader.read(connection.socket);
  if (state == FrameReader::State::complete) handler(std::move(connection.socket), connection.reader.take());
  return state == FrameReader::State::incomplete;
}

}  // namespace amldist::wireup
