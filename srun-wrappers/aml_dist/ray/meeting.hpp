// What the nodes' `aml-dist ray` tell each other over their connections to the head's, which the secret of the step
// opens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "aml_dist/ray/place.hpp"
#include "aml_dist/ray/program.hpp"
#include "aml_dist/ray/resources.hpp"
#include "world/wireup/frame.hpp"
#include "world/wireup/handshake.hpp"

namespace amldist::ray {

enum class MeetingKind : std::uint8_t {
  start = 60,  ///< from the head: it runs, join it
  end,         ///< from the head: it is over
  joined,      ///< from a node: its Ray has joined
  failed,  ///< from a node: why it does not take part, or no longer; from the head: it is this node's fault, or what
           ///< it is to say for the head
};

inline constexpr std::string_view lost_slurmstepd =
    "slurmstepd has ended there, and srun would wait for that node for ever: the step is cancelled";

/// A frame at its longest.
inline constexpr std::size_t longest_message = 4096;

/// What a node says of itself when it comes, behind its join request.
struct Introduction {
  Program program;
  Resources resources;
  std::string problem;  ///< why it cannot take part; empty: it can

  void add_to(world::FrameWriter& writer) const;
  [[nodiscard]] static Introduction read(world::Frame& frame);
};

[[nodiscard]] std::string group_name(const Place& place);
/// A frame with a text of at most 1000 bytes.
[[nodiscard]] std::string message(MeetingKind kind, std::string_view text = {});

/// Notices within half a minute that the other machine is gone.
void watch_connection(const FileDescriptor& socket) noexcept;

}  // namespace amldist::ray
