// Messages between the ranks of one node, through shared memory, beside a transport that carries those to other nodes:
// one ring for each ordered pair, in memory that the communicator has and that goes with it. In front of every message
// go its signature and its length; one that is longer than the ring streams through it.
#pragma once

#include <memory>
#include <vector>

#include "collective/node/message_ring.hpp"
#include "collective/node/slot_channel.hpp"
#include "collective/transport/transport.hpp"
#include "os/file_descriptor.hpp"

namespace amldist::collective {

class NodeTransport final : public Transport {
 public:
  /// Bytes of shared memory for `ranks` of one node: some 64 KiB for each pair and direction, of which those that talk
  /// take pages.
  [[nodiscard]] static std::size_t memory_bytes(std::uint32_t ranks) noexcept;
  /// `memory` is zeroed at first, aligned to a cache line, and outlives this object. The ranks of `place` ascend.
  NodeTransport(std::unique_ptr<Transport> others, std::byte* memory, const NodeGroup& place, bool oversubscribed);

  [[nodiscard]] std::string_view name() const noexcept override { return others_->name(); }
  [[nodiscard]] std::size_t part_bytes() const noexcept override { return others_->part_bytes(); }
  [[nodiscard]] bool serves_any_thread() const noexcept override { return others_->serves_any_thread(); }
  [[nodiscard]] Result<void> post(const Message& message, Direction direction, std::size_t& left,
                                  Watchdog& watchdog) override;
  [[nodiscard]] Result<bool> progress(Watchdog& watchdog) override;
  [[nodiscard]] Result<void> keep_waiting(Watchdog& watchdog) override;
  bool rest(int idle) override;
  [[nodiscard]] int awaited() const noexcept override;
  void interrupt() noexcept override;
  void give_up() noexcept override;

 private:
  struct Header {
    std::uint64_t signature;
    std::uint64_t bytes;
  };
  struct Progress {
    Message message;
    std::size_t* left = nullptr;
    std::size_t neighbour = 0;  ///< index of the peer on the node
    std::size_t done = 0;       ///< bytes of header and data
    [[nodiscard]] std::size_t remaining() const noexcept { return sizeof(Header) + message.bytes - done; }
    /// The next part of the data, within the next `bytes` of header and data.
    [[nodiscard]] std::span<std::byte> data(std::size_t bytes) const noexcept;
  };
  /// Both directions with one rank of the node; nothing with the own one.
  struct Neighbour {
    RingWriter to;
    RingReader from;
    std::uint64_t busy = 0;  ///< the pass of advance() in which an earlier message had its turn
  };

  [[nodiscard]] bool is_idle() const noexcept { return sends_.empty() && receives_.empty(); }
  [[nodiscard]] Result<bool> push(Progress& send, Watchdog& watchdog);
  [[nodiscard]] Result<bool> pull(Progress& receive, Watchdog& watchdog);
  template <typename Move>
  [[nodiscard]] Result<bool> advance(std::vector<Progress>& list, Move move);
  void nap(Clock::duration waited);

  std::unique_ptr<Transport> others_;
  std::vector<int> ranks_;  ///< of the communicator, on this node
  std::size_t own_;         ///< index among them
  bool oversubscribed_;
  FileDescriptor interrupted_;
  std::atomic<bool> naps_ = false;
  std::vector<Neighbour> neighbours_;
  std::vector<Progress> sends_;
  std::vector<Progress> receives_;
  std::uint64_t pass_ = 0;
  bool others_are_idle_ = true;  ///< nothing is under way there, so nothing has to be moved
  bool is_new_ = false;          ///< a message since the last rest()
  Clock::time_point idle_since_;
};

}  // namespace amldist::collective
