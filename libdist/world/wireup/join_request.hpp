// A peer's join request after its proof, how the accepting side judges it, and the answer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/result.hpp"
#include "world/wireup/frame.hpp"
#include "world/wireup/handshake.hpp"

namespace amldist::world {

/// The processes to be connected, as the accepting side knows them.
struct Group {
  std::string name;                   ///< purpose, job and step; the same in every process
  std::uint32_t first = 0;            ///< the lowest number that connects; 1 if number 0 is the accepting side
  std::uint32_t size = 1;             ///< numbers are below it
  std::string_view peer = "rank";     ///< what messages call a peer with its number,
  std::string_view noun = "process";  ///< and a peer without one
  std::string_view place = "rank 0";  ///< what they call the accepting side
};

/// What a peer says about itself.
struct JoinRequest {
  std::string group;         ///< Group::name
  std::uint64_t number = 0;  ///< its rank or node
  std::uint64_t size = 1;    ///< of the group, as the peer was told
  std::uint64_t process =
      0;             ///< random: tells a process that connects again from a second process with the same number
  std::string host;  ///< for messages; parse() makes it printable
  Frame details;     ///< further fields of the caller

  /// The frame, to which the caller may add fields.
  [[nodiscard]] FrameWriter to_frame() const;
  /// nullopt if it is not a join request of this protocol.
  [[nodiscard]] static std::optional<JoinRequest> parse(Frame frame);
};

/// What the group knows about a peer and needs for judging another one.
struct KnownPeer {
  std::uint64_t process = 0;
  std::string_view host;
};

/// How a peer is answered.
struct Admission {
  HandshakeKind answer = HandshakeKind::accepted;  ///< accepted, elsewhere or refused
  std::string reason;                              ///< if refused: one sentence, which ends the whole group
};

/// Judges a join request; no peer is accepted elsewhere. `present`: the peer that has the number already, or nullptr.
[[nodiscard]] Admission admit(const JoinRequest& join_request, const Group& group, const KnownPeer* present);

/// The frame that answers a join request, or later tells a peer why the group ends.
[[nodiscard]] std::string accepted_frame();
[[nodiscard]] std::string elsewhere_frame();
/// An answer fits into the socket's buffer: a peer that does not read cannot hold up the others.
void answer(const FileDescriptor& connection, const std::string& frame);
[[nodiscard]] std::string refused_frame(const Error& error);
[[nodiscard]] bool is_acceptance(Frame& frame) noexcept;
/// The error in a refused frame: its sentence printable and of bounded length, its class a valid one.
[[nodiscard]] Error read_refusal(Frame& frame);

/// A random number from the kernel; never 0.
[[nodiscard]] std::uint64_t random_number() noexcept;

/// "1, 5 and 3 others".
[[nodiscard]] std::string list_numbers(const std::vector<std::uint32_t>& numbers);

}  // namespace amldist::world
