// What one communicator's caller and the control thread know of each other: which call is being made, and whether the
// communicator is lost and why.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "collective/backend.hpp"

namespace amldist::collective {

/// Where a rank is in its communicator's sequence of collectives.
struct Activity {
  std::uint64_t sequence = 0;  ///< of the last collective that was begun; 0: none yet
  bool inside = false;         ///< still in a call
  Call call;                   ///< operation, type, operator, root, count and sequence of the last call begun
};

/// Shared by the thread that makes calls (enter, leave), and the control thread (activity, give_verdict). Thread-safe.
class CommWatch {
 public:
  CommWatch(std::uint64_t id, std::vector<std::uint32_t> members, std::uint32_t rank)
      : id_(id), members_(std::move(members)), rank_(rank) {}

  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  /// World ranks, by rank of the communicator.
  [[nodiscard]] const std::vector<std::uint32_t>& members() const noexcept { return members_; }
  [[nodiscard]] std::uint32_t rank() const noexcept { return rank_; }

  /// A few relaxed stores: this is on the path of every call.
  void enter(const Call& call) noexcept {
    const auto word = static_cast<std::uint64_t>(call.operation) | static_cast<std::uint64_t>(call.type) << 8 |
                      static_cast<std::uint64_t>(call.redop) << 16 |
                      static_cast<std::uint64_t>(static_cast<std::uint32_t>(call.root)) << 32;
    what_.store(word, std::memory_order_relaxed);
    count_.store(call.count, std::memory_order_relaxed);
    number_.store(call.sequence, std::memory_order_relaxed);
    if (!is_point_to_point(call.operation)) collective_.store(call.sequence, std::memory_order_relaxed);
    inside_.store(true, std::memory_order_release);
  }
  void leave() noexcept { inside_.store(false, std::memory_order_release); }
  [[nodiscard]] Activity activity() const noexcept;

  [[nodiscard]] bool is_lost() const noexcept { return lost_.load(std::memory_order_acquire); }
  /// Why it is lost; only the first reason counts. Returns whether this was it.
  bool give_verdict(Error error);
  /// The reason; nullopt while it is healthy.
  [[nodiscard]] std::optional<Error> verdict() const;
  [[nodiscard]] std::optional<Error> wait_for_verdict(Clock::time_point until);

 private:
  const std::uint64_t id_;
  const std::vector<std::uint32_t> members_;
  const std::uint32_t rank_;
  std::atomic<std::uint64_t> what_ = 0;
  std::atomic<std::uint64_t> count_ = 0;
  std::atomic<std::uint64_t> number_ = 0;
  std::atomic<std::uint64_t> collective_ = 0;
  std::atomic<bool> inside_ = false;
  std::atomic<bool> lost_ = false;
  mutable std::mutex mutex_;
  std::condition_variable decided_;
  std::optional<Error> verdict_;
};

}  // namespace amldist::collective
