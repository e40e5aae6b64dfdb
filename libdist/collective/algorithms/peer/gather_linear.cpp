// Gather: linear. Every rank sends its block straight to the root, which receives them in any order.
//
// Steps: 1, with n - 1 messages at the root.
#include <vector>

#include "collective/algorithms/peer/peer_collectives.hpp"
#include "collective/kernels/copy_bytes.hpp"

namespace amldist::collective {

Result<void> PeerCollectives::gather(const std::byte* send_buffer, std::byte* recv, const calls::Blocks& blocks,
                                     std::size_t unit, std::size_t root) {
  if (group_.own != root) return send(root, send_buffer, blocks.count(group_.own) * unit);
  std::vector<Message> receives;
  for (std::size_t r = 0; r < group_.size(); ++r) {
    if (r != root) receives.push_back(message(r, recv + blocks.offset(r) * unit, blocks.count(r) * unit));
  }
  copy_bytes(recv + blocks.offset(root) * unit, send_buffer, blocks.count(root) * unit);
  return transport_.exchange({}, receives, *watchdog_);
}

}  // namespace amldist::collective
