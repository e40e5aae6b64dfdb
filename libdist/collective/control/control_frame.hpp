// What the control connections carry once the world is wired up. The frames are those of wireup/.
#pragma once

#include <cstdint>

#include "wireup/frame.hpp"

namespace amldist::collective {

using wireup::Frame;
using wireup::FrameWriter;

/// Kinds of the control connections' frames.
enum class FrameKind : std::uint8_t {
  rank_greeting = 20,  ///< first on a later connection: which rank this is
  data_greeting,       ///< the same on a connection that carries a communicator's data
  bye,                 ///< the sender leaves in good order
  lost,                ///< from rank 0: a rank's process has ended
  report,              ///< to the coordinator: a call came to its deadline
  query,               ///< from the coordinator: what are you doing?
  status,              ///< the answer
  verdict,             ///< from the coordinator: the communicator is lost, and why
  piece,               ///< to a communicator's rank 0: one rank's piece of a gather_all
  pieces,              ///< from there: all of them
  agreement,           ///< among the ranks of a communicator that agree (agreement_message.hpp)
};

}  // namespace amldist::collective
