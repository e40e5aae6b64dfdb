// What the calling thread and the control thread of one communicator tell each other: which call is in progress, and
// whether the communicator is lost, and why.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "calls/call.hpp"
#include "calls/watchdog.hpp"
#include "world/control/stop_polls.hpp"

namespace amldist::world {

/// A collective that this rank has begun, to be compared with that of the same number on other ranks.
struct PastCall {
  calls::Call call;         ///< operation, type, operator, root, count and sequence
  std::uint32_t lists = 0;  ///< digest of what all ranks give alike in lists
  [[nodiscard]] std::uint32_t signature() const noexcept { return signature_of(call) ^ lists; }
};

/// How many elements a rank sends to and receives from each other in an alltoallv: only the two ranks of a pair know.
struct PairCounts {
  std::uint64_t sequence = 0;  ///< of the call; 0: there was none
  std::vector<std::uint64_t> gives;
  std::vector<std::uint64_t> takes;
};

/// Whom a diagnosis names and in which call: for programs what its sentence is for people.
struct ErrorSubject {
  std::int32_t rank = -1;  ///< of the communicator: the first that is missing or wrong; -1: the sentence names none
  calls::Operation operation = calls::Operation::none;
  std::uint64_t number = 0;  ///< of the call that did not end; 0: none
  /// How many ranks the sentence names because their own call does not match the others'; where `rank` is -1, one of
  /// them is right. 0: that is not why the call did not end.
  std::uint32_t wrong = 0;
};

/// Where a rank is in its communicator's sequence of collectives.
struct Activity {
  std::uint64_t sequence = 0;               ///< of the last collective that was begun; 0: none yet
  bool inside = false;                      ///< a call is in progress
  int waits_for = calls::Watchdog::anyone;  ///< the rank that the call waits for, where it is known
  calls::Call call;  ///< operation, type, operator, root, count and sequence of the last call begun
};

/// Thread-safe. The thread that runs calls writes (enter, wait_for, leave), the control thread reads (activity) and
/// decides (give_diagnosis).
class CommWatch {
 public:
  CommWatch(std::uint64_t id, std::vector<std::uint32_t> members, std::uint32_t rank)
      : id_(id), members_(std::move(members)), rank_(rank) {}

  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  /// World ranks, by rank of the communicator.
  [[nodiscard]] const std::vector<std::uint32_t>& members() const noexcept { return members_; }
  [[nodiscard]] std::uint32_t rank() const noexcept { return rank_; }
  [[nodiscard]] StopPolls& stop() noexcept { return stop_; }

  /// A few stores: this is on the path of every call.
  void enter(const calls::Call& call) noexcept {
    const bool is_message = is_point_to_point(call.operation);
    const auto word = static_cast<std::uint64_t>(call.operation) | static_cast<std::uint64_t>(call.type) << 8 |
                      static_cast<std::uint64_t>(call.redop) << 16 |
                      static_cast<std::uint64_t>(static_cast<std::uint32_t>(call.root)) << 32;
    Kept& kept = is_message ? message_ : kept_[call.sequence % calls_kept];
    kept.mark.store(0, std::memory_order_relaxed);
    kept.what.store(word, std::memory_order_release);
    kept.count.store(call.count, std::memory_order_release);
    kept.mark.store(call.sequence << 32 | digest_of_lists(call), std::memory_order_release);
    (is_message ? messages_ : collectives_).store(call.sequence, std::memory_order_release);
    if (call.operation == calls::Operation::alltoallv) keep_pair_counts(call);
    state_.store(is_message ? in_message : in_collective, std::memory_order_release);
  }
  void leave() noexcept { state_.store(state_.load(std::memory_order_relaxed) & ~inside, std::memory_order_release); }
  /// The last message has ended. It may have made progress inside a collective, which goes on.
  void leave_message() noexcept {
    if (state_.load(std::memory_order_relaxed) == in_message) leave();
  }
  /// The call in progress waits for this rank.
  void wait_for(int rank) noexcept {
    awaited_.store(std::uint64_t{label_of_call()} << 32 | static_cast<std::uint32_t>(rank), std::memory_order_relaxed);
  }
  /// Gives the oldest call that a device has not done. While there is one, it is this rank's activity, whatever the
  /// program does meanwhile.
  using PendingCall = std::function<std::optional<calls::Call>()>;
  void set_pending(PendingCall oldest);
  [[nodiscard]] Activity activity() const;
  /// The last collectives, oldest first: after a mismatch, some ranks have gone on to later calls meanwhile.
  [[nodiscard]] std::vector<PastCall> past() const;
  /// Of the last alltoallv.
  [[nodiscard]] PairCounts pair_counts() const;

  /// What keeps the call in progress from going on, as a clause that follows this rank's name: "cannot connect to rank
  /// 3 (node2) at 10.0.0.7:20048: Connection refused". Empty: nothing is known.
  void set_trouble(std::string clause);
  [[nodiscard]] std::string trouble() const;

  [[nodiscard]] bool is_lost() const noexcept { return lost_.load(std::memory_order_acquire); }
  /// The reason of the loss; only the first one counts. Returns whether it was the first. `silent`: ranks of the
  /// communicator that did not answer when the diagnosis was found; they are not taken along by a shrink.
  bool give_diagnosis(Error error, std::vector<std::uint32_t> silent = {}, ErrorSubject subject = {});
  [[nodiscard]] std::vector<std::uint32_t> silent_ranks() const;
  /// Of the diagnosis.
  [[nodiscard]] ErrorSubject error_subject() const;
  /// The reason; nullopt while it is healthy.
  [[nodiscard]] std::optional<Error> diagnosis() const;
  [[nodiscard]] std::optional<Error> wait_for_diagnosis(Clock::time_point until);

 private:
  const std::uint64_t id_;
  const std::vector<std::uint32_t> members_;
  const std::uint32_t rank_;
  StopPolls stop_;
  /// A call that has begun. `mark`: the lower half of its number, then the digest of its lists; 0 while it is written.
  struct alignas(32) Kept {
    std::atomic<std::uint64_t> mark = 0;
    std::atomic<std::uint64_t> what = 0;
    std::atomic<std::uint64_t> count = 0;
  };
  static constexpr std::size_t calls_kept = 64;
  static constexpr std::uint8_t inside = 1;
  static constexpr std::uint8_t of_message = 2;  ///< the last call was one
  static constexpr std::uint8_t in_collective = inside;
  static constexpr std::uint8_t in_message = inside | of_message;

  void keep_pair_counts(const calls::Call& call) noexcept;
  /// Tells the call in progress from those before it.
  [[nodiscard]] std::uint32_t label_of_call() const noexcept {
    const bool is_message = (state_.load(std::memory_order_relaxed) & of_message) != 0;
    const auto number = (is_message ? messages_ : collectives_).load(std::memory_order_relaxed);
    return static_cast<std::uint32_t>(number) << 1 | (is_message ? 1U : 0U);
  }

  std::atomic<std::uint64_t> collectives_ = 0;
  std::atomic<std::uint64_t> messages_ = 0;
  std::atomic<std::uint8_t> state_ = 0;
  std::atomic<std::uint64_t> awaited_ = UINT32_MAX;  ///< label of the call, before the rank
  std::atomic<bool> lost_ = false;
  mutable std::mutex mutex_;
  std::condition_variable decided_;
  std::optional<Error> diagnosis_;
  std::vector<std::uint32_t> silent_;
  ErrorSubject subject_;
  PendingCall pending_;  ///< guarded by mutex_
  std::string trouble_;  ///< guarded by mutex_
  PairCounts pair_counts_;
  Kept message_;  ///< the last send or receive
  std::array<Kept, calls_kept> kept_;
};

}  // namespace amldist::world
