// Scatter: linear. The root sends every rank its block, all at once.
//
// Steps: 1, with n - 1 messages at the root.
#include <vector>

#include "collective/algorithms/peer/peer_collectives.hpp"
#include "collective/kernels/copy_bytes.hpp"

namespace amldist::collective {

Result<void> PeerCollectives::scatter_linear(const std::byte* send_buffer, std::byte* recv, const calls::Blocks& blocks,
                                             std::size_t unit, std::size_t root) {
  if (group_.own != root) return receive(root, recv, blocks.count(group_.own) * unit);
  std::vector<Message> sends;
  for (std::size_t r = 0; r < group_.size(); ++r) {
    if (r != root) sends.push_back(message(r, send_buffer + blocks.offset(r) * unit, blocks.count(r) * unit));
  }
  if (auto status = transport_.exchange(sends, {}, *watchdog_); !status) return status;  // first: others wait for it
  copy_bytes(recv, send_buffer + blocks.offset(root) * unit, blocks.count(root) * unit);
  return {};
}

}  // namespace amldist::collective
