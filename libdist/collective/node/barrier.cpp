// Barrier: one round. Every rank publishes its cache line and waits for those of the other ranks.
#include "collective/node/node_collectives.hpp"

namespace amldist::collective {

Result<void> NodeCollectives::barrier() {
  if (auto status = slot_channel_.begin(); !status) return status;
  slot_channel_.publish();
  return slot_channel_.await_all();
}

}  // namespace amldist::collective
