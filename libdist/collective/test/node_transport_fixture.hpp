// Three ranks of a node in one process, so that a test decides which of them makes progress, and can write into a ring.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "collective/transport/node_transport.hpp"
#include "ends_in_one_process.hpp"

namespace amldist::collective {

/// Ranks 2, 5 and 6 of a communicator are one node.
class NodeTransportTest : public ::testing::Test {
 protected:
  static constexpr int first = 2;
  static constexpr int second = 5;
  static constexpr int third = 6;

  NodeTransportTest() : memory_(make_memory(NodeTransport::memory_bytes(3))) { replace_ends(nullptr, true); }
  void replace_ends(const PeerMemory* peers, bool oversubscribed) {
    ends_.clear();
    std::memset(memory_.data(), 0, NodeTransport::memory_bytes(3));
    for (std::uint32_t i = 0; i < 3; ++i) {
      ends_.push_back(std::make_unique<NodeTransport>(std::make_unique<OtherNodes>(elsewhere), memory_.data(),
                                                      NodeGroup{i, 3, {first, second, third}, "node7"}, oversubscribed,
                                                      peers));
    }
  }
  [[nodiscard]] NodeTransport& end(int rank) { return *ends_[rank == first ? 0 : rank == second ? 1 : 2]; }
  static constexpr std::size_t ring_capacity = MessageRing::capacity_of(3);
  /// Of all blocks of a pair: more than a message finds room for that nobody receives.
  static constexpr std::size_t capacity = MessageBlocks::count_of(3) * MessageBlocks::block;
  /// The ring from the first rank to the second.
  [[nodiscard]] MessageRing& ring() {
    return *reinterpret_cast<MessageRing*>(memory_.data() + MessageRing::bytes_of(3));
  }

  void post(int rank, Direction direction, int peer, std::vector<std::byte>& data, std::size_t& left,
            std::uint32_t signature = 7) {
    EXPECT_TRUE(end(rank).post({peer, data.data(), data.size(), signature, false}, direction, left, watchdog));
  }
  /// Lets both ends make progress in turn until neither can.
  void run(int one, int other) {
    for (bool moved = true; moved;) {
      const auto a = end(one).progress(watchdog);
      const auto b = end(other).progress(watchdog);
      ASSERT_TRUE(a && b);
      moved = *a || *b;
    }
  }
  /// One message from the first rank to the second.
  void exchange(std::size_t length, unsigned salt) {
    std::vector<std::byte> given = pattern(length, salt);
    std::vector<std::byte> got(length);
    std::size_t sending = 0;
    std::size_t receiving = 0;
    post(second, Direction::receive, first, got, receiving);
    post(first, Direction::send, second, given, sending);
    run(first, second);
    EXPECT_EQ(sending + receiving, 0U) << length;
    EXPECT_EQ(got, given) << length;
  }
  [[nodiscard]] std::string error_of(int rank) {
    const auto moved = end(rank).progress(watchdog);
    return moved ? "none" : moved.error().message;
  }

  WitnessWatchdog watchdog;
  std::vector<int> elsewhere;

 private:
  SharedMemory memory_;
  std::vector<std::unique_ptr<NodeTransport>> ends_;
};

}  // namespace amldist::collective
