// What tests need whose ranks are all in their own process.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collective/node/memory/shared_memory.hpp"
#include "collective/transport/transport.hpp"

namespace amldist::collective {

/// Notes what it is told.
class WitnessWatchdog final : public calls::Watchdog {
 public:
  [[nodiscard]] Result<void> keep_waiting(int rank) override {
    asked.push_back(rank);
    return {};
  }
  [[nodiscard]] Error differs(int rank) override { return {Errc::peer, "differs " + std::to_string(rank)}; }
  [[nodiscard]] Error lost(int rank, std::string_view what) override {
    return {Errc::peer, "lost " + std::to_string(rank) + ": " + std::string(what)};
  }
  [[nodiscard]] Clock::time_point deadline() const noexcept override { return Clock::time_point::max(); }

  std::vector<int> asked;
};

/// Accepts messages to other nodes and never moves them.
class OtherNodes final : public Transport {
 public:
  explicit OtherNodes(std::vector<int>& peers) : peers_(peers) {}
  [[nodiscard]] std::string_view name() const noexcept override { return "other nodes"; }
  [[nodiscard]] std::size_t part_bytes() const noexcept override { return 4096; }
  [[nodiscard]] bool serves_any_thread() const noexcept override { return true; }
  [[nodiscard]] Result<void> post(const Message& message, Direction /*direction*/, std::size_t& left,
                                  calls::Watchdog& /*watchdog*/) override {
    peers_.push_back(message.peer);
    ++left;
    return {};
  }
  [[nodiscard]] Result<bool> progress(calls::Watchdog& /*watchdog*/) override { return false; }
  bool rest(int /*idle*/) override { return true; }
  [[nodiscard]] int awaited() const noexcept override {
    return peers_.empty() ? calls::Watchdog::anyone : peers_.front();
  }
  void give_up() noexcept override { peers_.clear(); }

 private:
  std::vector<int>& peers_;
};

/// Calls progress() of each end in turn until no end moves anything.
template <typename Ends>
void run_until_idle(Ends& ends, calls::Watchdog& watchdog) {
  for (bool moved = true; moved;) {
    moved = false;
    for (auto& each : ends) {
      const auto any = each->progress(watchdog);
      ASSERT_TRUE(any);
      moved = moved || *any;
    }
  }
}

inline SharedMemory make_memory(std::size_t bytes) {
  auto made = SharedMemory::create(bytes);
  return std::move(*made);
}

inline std::vector<std::byte> pattern(std::size_t bytes, unsigned salt) {
  std::vector<std::byte> out(bytes);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>(i * 31 + i / 251 + salt);
  return out;
}

}  // namespace amldist::collective
