// Ranks as threads: an exchange between them, and a watchdog with nothing but a deadline.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <thread>

#include "calls/exchange.hpp"
#include "calls/watchdog.hpp"

namespace amldist::testing {

using amldist::Clock;

/// What the exchanges of all ranks share.
class MeetingRoom {
 public:
  explicit MeetingRoom(int size) : size_(size) {}

  Result<std::vector<std::string>> gather(int rank, std::string piece, Clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    const std::size_t round = slot_channel_[rank]++;
    auto& pieces = pieces_[round];
    pieces[rank] = std::move(piece);
    changed_.notify_all();
    if (changed_.wait_until(lock, deadline, [&] { return pieces.size() == static_cast<std::size_t>(size_); })) {
      std::vector<std::string> all;
      for (const auto& [from, words] : pieces) all.push_back(words);
      return all;
    }
    for (int r = 0; r < size_; ++r) {
      if (!pieces.contains(r)) return Error{Errc::timeout, "rank " + std::to_string(r) + " did not come"};
    }
    return Error{Errc::internal, "unreachable"};
  }

  [[nodiscard]] int size() const { return size_; }

 private:
  int size_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, std::size_t> slot_channel_;
  std::map<std::size_t, std::map<int, std::string>> pieces_;
};

class ThreadExchange final : public calls::Exchange {
 public:
  ThreadExchange(MeetingRoom& room, int rank) : room_(&room), rank_(rank) {}
  [[nodiscard]] int rank() const noexcept override { return rank_; }
  [[nodiscard]] int size() const noexcept override { return room_->size(); }
  [[nodiscard]] Result<std::vector<std::string>> gather_all(std::string piece, Clock::time_point deadline) override {
    return room_->gather(rank_, std::move(piece), deadline);
  }

 private:
  MeetingRoom* room_;
  int rank_;
};

class DeadlineWatchdog final : public calls::Watchdog {
 public:
  explicit DeadlineWatchdog(Clock::duration patience) : deadline_(Clock::now() + patience) {}
  [[nodiscard]] Result<void> keep_waiting(int) override {
    if (Clock::now() < deadline_) return {};
    return Error{Errc::timeout, "rank 1 is missing"};
  }
  [[nodiscard]] Error differs(int) override { return {Errc::peer, "differs"}; }
  [[nodiscard]] Error lost(int, std::string_view) override { return {Errc::peer, "lost"}; }
  [[nodiscard]] Clock::time_point deadline() const noexcept override { return deadline_; }

 private:
  Clock::time_point deadline_;
};

/// Runs one thread per rank and waits for all.
inline void on_ranks(int size, const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace amldist::testing
