// The head's connections to the other nodes' `aml-dist ray`.
#pragma once

#include <poll.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "aml_dist/ray/meeting.hpp"
#include "base/os/file_descriptor.hpp"
#include "base/text/result.hpp"
#include "world/wireup/acceptor.hpp"

namespace amldist::ray {

class Peers {
 public:
  struct Peer {
    enum class State : std::uint8_t { absent, present, starting, joined, gone };
    State state = State::absent;
    std::string host;
    Introduction introduction;
    world::FrameReader reader{longest_message};
  };

  /// Listens at once. Errors: unavailable, with why.
  [[nodiscard]] static Result<Peers> open(const Place& place);

  void add_to(std::vector<pollfd>& files) const;
  /// Takes what has come, without waiting. Errors: the first node that does not take part, or no longer, and why.
  [[nodiscard]] Result<void> serve();
  /// Tells those to start that have come and have not been told.
  void start_present();
  /// Tells a node that it is the one that does not fit: it ends with a failure.
  void refuse(std::uint32_t node) { send(node, MeetingKind::failed); }
  /// All end with a failure, and the first of them says why: nobody reads what the head says.
  void give_up(std::string_view why);
  /// Whether all nodes but the head have joined.
  [[nodiscard]] bool are_complete() const noexcept;
  [[nodiscard]] const std::vector<Peer>& all() const noexcept { return peers_; }
  /// Which nodes have not joined, and what they did instead: "node3 has not come".
  [[nodiscard]] std::string missing(const Place& place) const;
  /// Tells all that it is over, and waits until they have gone, at most for `patience`. Those that come meanwhile hear
  /// it too if `wait_for_late`.
  void end(std::chrono::milliseconds patience, bool wait_for_late);
  /// The nodes that are still there; after end(), those that did not go.
  [[nodiscard]] std::string present() const;

 private:
  Peers(FileDescriptor listener, world::Acceptor acceptor, std::uint32_t nodes)
      : listener_(std::move(listener)), acceptor_(std::move(acceptor)), peers_(nodes) {}

  [[nodiscard]] Result<void> hear(std::uint32_t node);
  void send(std::uint32_t node, MeetingKind kind, std::string_view text = {});
  void drain(std::uint32_t node);

  FileDescriptor listener_;
  world::Acceptor acceptor_;
  std::vector<Peer> peers_;  ///< by node; the first one, the head, is never there
};

}  // namespace amldist::ray
