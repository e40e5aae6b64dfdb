// How long messages of a pair of ranks travel: through the ring, or fetched by the reader from the writer's memory. The
// faster way depends on the processors and on the kernel: fetching 64 KiB took half of the time of the ring on a Xeon,
// and one and a half times on an EPYC (decision 32). So the writer sends a few messages of each class of sizes in both
// ways in turn, the reader times all of them and publishes which way it prefers, and the writer uses that. Some hundred
// messages later the writer tries again.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "collective/tuning/algorithm_choice.hpp"

namespace amldist::collective {

/// The writer's side. `preferred`: the reader's, a bit for each class.
class MessageWayChoice {
 public:
  /// Whether the next message of this many bytes is fetched.
  [[nodiscard]] bool fetches(std::size_t bytes, std::uint64_t preferred) const noexcept {
    const std::size_t of = tuning::message_class(bytes);
    const std::uint64_t turn = begun_[of] % tuning::message_trial_every;
    return turn < tuning::messages_tried ? turn % 2 == 1 : (preferred >> of & 1) != 0;
  }
  /// Counts a message that has begun.
  void count(std::size_t bytes) noexcept { ++begun_[tuning::message_class(bytes)]; }

 private:
  std::array<std::uint64_t, tuning::message_classes> begun_ = {};
};

/// The reader's side.
class MessageWayTimes {
 public:
  /// Whether to note how long a message takes, which costs two readings of the clock. Of the messages that are copied
  /// because that is faster, few are enough.
  [[nodiscard]] bool wants(std::size_t bytes, bool is_fetched) noexcept {
    constexpr std::uint32_t one_of = 8;
    const std::size_t of = tuning::message_class(bytes);
    Least& least = least_[of];
    const bool is_settled = least.fetched != unknown && least.streamed != unknown && (preferred_ >> of & 1) == 0;
    return is_fetched || !is_settled || least.passed++ % one_of == 0;
  }
  /// A message took this many picoseconds per byte, from its header to its end. Returns what the reader prefers now.
  std::uint64_t note(std::size_t bytes, bool was_fetched, std::uint64_t took) noexcept {
    const std::size_t of = tuning::message_class(bytes);
    Least& least = least_[of];
    std::uint64_t& known = was_fetched ? least.fetched : least.streamed;
    known = std::min(known == unknown ? unknown : known + known / 128 + 1, took);  // old times count less and less
    if (least.fetched == unknown || least.streamed == unknown) return preferred_;
    const std::uint64_t bit = std::uint64_t{1} << of;
    const bool stays = std::max(least.fetched, least.streamed) * 19 / 20 <= std::min(least.fetched, least.streamed);
    if (!stays) preferred_ = least.fetched < least.streamed ? preferred_ | bit : preferred_ & ~bit;
    return preferred_;
  }

 private:
  static constexpr std::uint64_t unknown = UINT64_MAX;
  struct Least {
    std::uint64_t streamed = unknown;
    std::uint64_t fetched = unknown;
    std::uint32_t passed = 0;  ///< messages of which wants() has asked only some
  };

  std::array<Least, tuning::message_classes> least_ = {};
  std::uint64_t preferred_ = 0;
};

}  // namespace amldist::collective
