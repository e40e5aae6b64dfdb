// What the control connections carry once the world is wired up. The frames are those of wireup/.
#pragma once

#include <cstdint>

#include "world/wireup/frame.hpp"

namespace amldist::world {

using world::Frame;
using world::FrameWriter;

/// Kinds of the control connections' frames.
enum class FrameKind : std::uint8_t {
  rank_join = 20,  ///< first on a later connection: which rank this is
  data_join,       ///< the same on a connection that carries a communicator's data
  bye,             ///< the sender leaves in good order
  lost,            ///< along the tree: ranks whose processes have ended
  report,          ///< up a communicator's tree: a call came to its deadline
  query,           ///< down: what are you doing?
  status,          ///< the answers, merged on the way up
  diagnosis,       ///< to all: the communicator is lost, and why
  piece,           ///< up a communicator's tree: pieces of a gather
  pieces,          ///< down: all of them
  heard = 32,      ///< a report, a query or a diagnosis has come
  pair_counts,     ///< to the root: the counts of an alltoallv
  agreement,       ///< among the ranks of a communicator that agree (agreement_message.hpp)
  stop,            ///< along a communicator's tree: a rank wants to stop (stop_polls.hpp)
};

}  // namespace amldist::world
