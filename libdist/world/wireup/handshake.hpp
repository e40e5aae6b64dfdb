// The mutual proof at the beginning of every connection, as two state machines without sockets. README.md has the
// protocol.
//
//   joining side   hello:     protocol, mark of the group, nonce, hash of its join request
//   hosting side   challenge: nonce, code ("host", everything so far)
//   joining side   proof:     code ("joiner", everything so far); then the join request
//
// "Everything" contains the two ends' addresses as each side sees them, so that a proof cannot be relayed. Each side
// makes a fresh nonce, so that a proof cannot be replayed. The two roles have different codes, so that a proof cannot
// be reflected.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/os/file_descriptor.hpp"
#include "world/wireup/frame.hpp"
#include "world/wireup/key.hpp"

namespace amldist::world {

/// Kinds of the handshake's frames. Users of a connection number theirs from 16 on.
enum class HandshakeKind : std::uint8_t {
  join_request = 1,  ///< from the joining side after its proof: who it is
  accepted,          ///< from the hosting side: wait for the others
  elsewhere,         ///< this is another step's host, or its secret differs: look elsewhere
  refused,           ///< the group was not formed, or has ended, and why
  hello,             ///< the first frame, from the joining side
  challenge,         ///< the hosting side's proof
  proof,             ///< the joining side's proof
};

/// What both sides of a group's connections know: its key and its name.
class GroupKey {
 public:
  /// `name` need not be secret. An open group has a public key.
  GroupKey(const Credentials& credentials, std::string_view name);
  /// The first bytes that a joining side sends, so that a host recognises its group. They reveal nothing about the key.
  [[nodiscard]] const Code& mark() const noexcept { return mark_; }
  [[nodiscard]] const Key& key() const noexcept { return key_; }
  /// Whether there is a secret; without one, addresses are not compared: address translation must not break a world
  /// that nothing protects anyway.
  [[nodiscard]] bool is_secret() const noexcept { return is_secret_; }

 private:
  Key key_;
  Code mark_;
  bool is_secret_;
};

/// The addresses of a connection's ends, as this side sees them; empty for a socket that is not a network socket.
struct Ends {
  std::string joiner;
  std::string host;

  [[nodiscard]] static Ends as_joiner(const FileDescriptor& socket);
  [[nodiscard]] static Ends as_host(const FileDescriptor& socket);
};

/// The hosting side's part of one connection.
class HostHandshake {
 public:
  enum class State : std::uint8_t {
    waits_for_hello,
    waits_for_proof,
    waits_for_join_request,  ///< the peer has proven that it belongs to the group
    complete,
    elsewhere,  ///< a peer of another group: tell it so and close the connection
    stranger,   ///< close the connection
  };
  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] bool has_proven() const noexcept {
    return state_ == State::waits_for_join_request || state_ == State::complete;
  }
  /// The largest length of the next frame.
  [[nodiscard]] std::size_t most_bytes() const noexcept;
  /// Takes the next frame. Returns the bytes to send, which may be empty.
  [[nodiscard]] std::string take(const GroupKey& group, Frame frame, const Ends& ends);
  /// The join request, once complete.
  [[nodiscard]] Frame join_request() { return std::move(join_request_); }

 private:
  [[nodiscard]] std::string take_hello(const GroupKey& group, Frame& frame, const Ends& ends);
  void take_proof(Frame& frame);
  void take_join_request(Frame&& frame);

  State state_ = State::waits_for_hello;
  Code expected_{};  ///< of the proof
  Code join_request_hash_{};
  Frame join_request_;
};

/// The joining side's part of one connection.
class JoinerHandshake {
 public:
  /// `join_request`: a whole frame.
  JoinerHandshake(GroupKey group, std::string join_request);

  /// The first bytes to send. Empty if the kernel gave no nonce.
  [[nodiscard]] const std::string& hello() const noexcept { return hello_; }
  /// Takes the host's challenge. Returns proof and join request; nullopt if this is not the host of the group.
  [[nodiscard]] std::optional<std::string> take(Frame frame, const Ends& ends);

 private:
  GroupKey group_;
  std::string join_request_;
  std::string hello_;
};

}  // namespace amldist::world
