// The accepting side of the star: accepts the peers of one group and reports who is missing.
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
  /// `credentials`: the group's key and name.
  Acceptor(Group group, const Credentials& credentials);

  /// Adds the descriptors that poll() must watch beside the listener.
  void add_to(std::vector<pollfd>& wanted) const { pending_.add_to(wanted); }
  [[nodiscard]] Clock::time_point next_deadline() const noexcept { return pending_.next_deadline(); }
  /// Accepts, reads and answers, without waiting. Returns the join requests of the peers accepted since the last call,
  /// including those of processes that connect again. Errors: mismatch, when a process of this group contradicts it.
  [[nodiscard]] Result<std::vector<JoinRequest>> serve(const FileDescriptor& listener, Clock::time_point now);
  /// The same for one accepted connection; call it before serve().
  void add(FileDescriptor connection, Clock::time_point now);

  [[nodiscard]] bool is_complete() const noexcept { return present_ == group_.size - group_.first; }
  [[nodiscard]] std::vector<std::uint32_t> missing() const;
  /// The connection to a peer; invalid until the peer has connected.
  [[nodiscard]] const FileDescriptor& link(std::uint32_t number) const { return peers_.at(number).link; }
  /// Closes the connection to a peer, which counts as missing from now on.
  void dismiss(std::uint32_t number);
  /// Tells every peer why the group was not formed, or ends. Waits for each at most until `deadline`.
  void refuse_all(const Error& error, Clock::time_point deadline);
  /// All connections by number. The acceptor must not be used afterwards.
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
