// The accepting side of the star: lets the peers of one group in, and says who is missing.
#pragma once

#include <poll.h>

#include <cstdint>
#include <string>
#include <vector>

#include "base/os/file_descriptor.hpp"
#include "base/text/result.hpp"
#include "base/time/clock.hpp"
#include "world/wireup/join_request.hpp"
#include "world/wireup/pending_connections.hpp"

namespace amldist::world {

class Acceptor {
 public:
  /// `credentials`: what the group's processes know and strangers do not.
  Acceptor(Group group, const Credentials& credentials);

  /// Adds what poll() is to wait for beside the listener.
  void add_to(std::vector<pollfd>& wanted) const { pending_.add_to(wanted); }
  [[nodiscard]] Clock::time_point next_deadline() const noexcept { return pending_.next_deadline(); }
  /// Accepts, reads and answers, without waiting. Returns the join requests of those let in since the last call; a
  /// process that connects again is among them again. Errors: mismatch, when a process of this group contradicts it.
  [[nodiscard]] Result<std::vector<JoinRequest>> serve(const FileDescriptor& listener, Clock::time_point now);
  /// The same for one accepted connection, before serve().
  void add(FileDescriptor connection, Clock::time_point now);

  [[nodiscard]] bool is_complete() const noexcept { return present_ == group_.size - group_.first; }
  [[nodiscard]] std::vector<std::uint32_t> missing() const;
  /// The connection to a peer; invalid as long as it has not come.
  [[nodiscard]] const FileDescriptor& link(std::uint32_t number) const { return peers_.at(number).link; }
  /// Closes the connection to a peer, which is missing from now on.
  void dismiss(std::uint32_t number);
  /// Tells every peer why the group does not come about, or ends. Waits for each at most until `deadline`.
  void refuse_all(const Error& error, Clock::time_point deadline);
  /// All connections by number. Ends the acceptor's use.
  [[nodiscard]] std::vector<FileDescriptor> take_links();

 private:
  struct Peer {
    FileDescriptor link;
    std::uint64_t process = 0;
    std::string host;
  };
  void greet(FileDescriptor connection, Frame frame);
  void let_in(FileDescriptor connection, JoinRequest join_request);

  Group group_;
  PendingConnections pending_;
  std::vector<Peer> peers_;
  std::uint32_t present_ = 0;
  std::vector<JoinRequest> admitted_;
  std::string contradiction_;
};

}  // namespace amldist::world
