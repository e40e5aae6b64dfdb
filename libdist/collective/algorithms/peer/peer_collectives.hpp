// Collectives among ranks that only exchange messages: between nodes, or if no faster way is available.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "calls/blocks.hpp"
#include "calls/reduction.hpp"
#include "collective/kernels/reductions.hpp"
#include "collective/transport/transport.hpp"

namespace amldist::collective {

/// Some ranks of a communicator, including this one. Ranks and roots below are indices into `ranks`.
struct PeerGroup {
  std::vector<int> ranks;  ///< of the communicator, ascending
  std::size_t own = 0;     ///< index of this rank

  [[nodiscard]] std::size_t size() const noexcept { return ranks.size(); }
};

class PeerCollectives {
 public:
  using Index = std::size_t;  ///< of a rank

  PeerCollectives(Transport& transport, PeerGroup group, const Reductions& kernels)
      : transport_(transport), group_(std::move(group)), kernels_(kernels) {}

  [[nodiscard]] const PeerGroup& group() const noexcept { return group_; }

  /// Like SlotChannel's: messages carry this signature, and waits use this watchdog.
  void begin_call(std::uint32_t signature, calls::Watchdog& watchdog) noexcept {
    signature_ = signature;
    watchdog_ = &watchdog;
  }

  [[nodiscard]] Result<void> barrier();
  /// Computes sums, never averages; the caller divides at the end.
  [[nodiscard]] Result<void> allreduce(const calls::Reduction& what);
  [[nodiscard]] Result<void> reduce(const calls::Reduction& what, std::size_t root);
  [[nodiscard]] Result<void> reduce_scatter(const calls::Reduction& what, const calls::Blocks& blocks);
  [[nodiscard]] Result<void> broadcast(std::byte* buffer, std::size_t bytes, std::size_t root);
  [[nodiscard]] Result<void> allgather(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                       std::size_t unit);
  [[nodiscard]] Result<void> gather(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                    std::size_t unit, std::size_t root);
  [[nodiscard]] Result<void> scatter(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                     std::size_t unit, std::size_t root);
  [[nodiscard]] Result<void> alltoall(const std::byte* send, const calls::Blocks& send_blocks, std::byte* recv,
                                      const calls::Blocks& recv_blocks, std::size_t unit);
  /// The same without the blocks from and to these ranks of the communicator (ascending, this rank among them).
  [[nodiscard]] Result<void> alltoall_beyond(std::span<const int> done, const std::byte* send,
                                             const calls::Blocks& send_blocks, std::byte* recv,
                                             const calls::Blocks& recv_blocks, std::size_t unit);

 private:
  [[nodiscard]] Result<void> swap_blocks(const std::function<bool(std::size_t)>& is_left, std::byte* buffer,
                                         std::size_t bytes);
  [[nodiscard]] Result<void> allgather_recursive_doubling(std::byte* recv, const calls::Blocks& blocks,
                                                          std::size_t unit);
  [[nodiscard]] Result<void> allgather_ring(std::byte* recv, const calls::Blocks& blocks, std::size_t unit);
  [[nodiscard]] Result<void> allreduce_direct(const calls::Reduction& what);
  [[nodiscard]] Result<void> allreduce_recursive_doubling(const calls::Reduction& what);
  [[nodiscard]] Result<void> allreduce_rabenseifner(const calls::Reduction& what);
  [[nodiscard]] Result<void> allreduce_ring(const calls::Reduction& what);
  [[nodiscard]] Result<void> scatter_binomial_tree(const std::byte* send, std::byte* recv, std::size_t block,
                                                   std::size_t root);
  [[nodiscard]] Result<void> scatter_linear(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                            std::size_t unit, std::size_t root);
  [[nodiscard]] Result<void> swap(std::size_t to, const std::byte* out, std::size_t out_bytes, std::size_t from,
                                  std::byte* in, std::size_t in_bytes);
  /// Like swap(), for elements: combines incoming data with `mine` into `into` (which may be either) as it arrives,
  /// through scratch memory.
  [[nodiscard]] Result<void> swap_and_combine(std::size_t to, const std::byte* out, std::size_t out_count,
                                              std::size_t from, const std::byte* mine, std::byte* into,
                                              std::size_t in_count, const calls::Reduction& what, bool other_first);
  /// Appends messages for this data, in parts; the first has the transport's room before it, if any.
  void add_parts(std::vector<Message>& list, std::size_t peer, const std::byte* data, std::size_t bytes,
                 bool has_room = false) const;
  /// The same in segments, as swaps of segments do it.
  void add_segments(std::vector<Message>& list, std::size_t peer, const std::byte* data, std::size_t bytes) const;
  [[nodiscard]] Message message(std::size_t peer, const std::byte* data, std::size_t bytes) const;
  [[nodiscard]] Result<void> send(std::size_t to, const std::byte* data, std::size_t bytes);
  [[nodiscard]] Result<void> receive(std::size_t from, std::byte* data, std::size_t bytes);
  /// into = mine op other; `other_first`: other op mine. `into` may be either.
  void combine(std::byte* into, const std::byte* mine, const std::byte* other, std::size_t count,
               const calls::Reduction& what, bool other_first) const;
  /// Scratch memory, preceded by the transport's room.
  [[nodiscard]] std::byte* scratch(std::size_t bytes);

  Transport& transport_;
  PeerGroup group_;
  const Reductions& kernels_;
  std::uint32_t signature_ = 0;
  calls::Watchdog* watchdog_ = nullptr;
  std::vector<std::byte> scratch_;  ///< at most a few MiB for any message, or 4 KiB for each rank
  std::vector<Message> sends_;      ///< of one exchange
  std::vector<Message> receives_;
};

}  // namespace amldist::collective
