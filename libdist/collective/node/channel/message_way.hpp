// How long messages of a pair of ranks travel: copied through blocks, by ordinary or by streaming stores, or fetched
// by the reader from the writer's memory. Which is fastest depends on the processors and on the kernel: fetching 64 KiB
// took half of the time of the ring on a Xeon, and one and a half times on an EPYC (decision 32); between processors of
// an EPYC that have no cache in common, streaming stores take half of the time, and twice where they have one (decision
// 41). So the writer sends a few messages of each class (tuning::message_class()) in all ways in turn, the reader times
// them and publishes which way it prefers, and the writer uses that. Some hundred messages later the writer tries
// again. Where ranks share processors, the length decides instead (decision 48).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "collective/tuning/algorithm_choice.hpp"

namespace amldist::collective {

enum class MessageWay : std::uint8_t { copied, streamed, fetched };
inline constexpr std::size_t message_ways = 3;

/// The reader's preferences, for each class of messages.
class PreferredWays {
 public:
  constexpr PreferredWays() noexcept = default;
  /// From the ring: a damaged one may hold anything.
  constexpr explicit PreferredWays(std::uint64_t bits) noexcept : bits_(bits) {}
  [[nodiscard]] constexpr std::uint64_t bits() const noexcept { return bits_; }
  [[nodiscard]] constexpr MessageWay of(std::size_t message_class) const noexcept {
    const std::uint64_t way = bits_ >> shift(message_class) & mask;
    return way < message_ways ? static_cast<MessageWay>(way) : MessageWay::copied;
  }
  constexpr void set(std::size_t message_class, MessageWay way) noexcept {
    bits_ = (bits_ & ~(mask << shift(message_class))) | static_cast<std::uint64_t>(way) << shift(message_class);
  }
  friend bool operator==(const PreferredWays&, const PreferredWays&) = default;

 private:
  static constexpr std::uint64_t mask = 3;
  [[nodiscard]] static constexpr std::size_t shift(std::size_t message_class) noexcept { return 2 * message_class; }

  std::uint64_t bits_ = 0;
};

/// The writer's side.
class MessageWayChoice {
 public:
  /// The way of the next message of this class. `can_fetch`: the reader may read the writer's memory.
  [[nodiscard]] MessageWay next(std::size_t of, PreferredWays preferred, bool can_fetch) const noexcept {
    const std::uint64_t ways = can_fetch ? message_ways : message_ways - 1;
    const std::uint64_t turn = begun_[of] % tuning::message_trial_every;
    const MessageWay way =
        turn < tuning::messages_tried * ways ? static_cast<MessageWay>(turn % ways) : preferred.of(of);
    return way == MessageWay::fetched && !can_fetch ? MessageWay::copied : way;
  }
  /// Counts a message that has begun.
  void count(std::size_t of) noexcept { ++begun_[of]; }

 private:
  std::array<std::uint64_t, tuning::message_classes> begun_ = {};
};

/// The reader's side.
class MessageWayTimes {
 public:
  /// Whether to note how long a message takes, which costs two readings of the clock. Of the messages that go the
  /// fastest way through the ring few are enough.
  [[nodiscard]] bool wants(std::size_t of, MessageWay way) noexcept {
    constexpr std::uint32_t one_of = 8;
    const bool is_trial = way != preferred_.of(of) || way == MessageWay::fetched;
    return is_trial || !knows_another(of, way) || passed_[of]++ % one_of == 0;
  }
  /// A message took this many picoseconds per byte, from its header to its end. Returns what the reader prefers now.
  PreferredWays note(std::size_t of, MessageWay way, std::uint64_t took) noexcept {
    Times& least = least_[of];
    std::uint64_t& known = least[static_cast<std::size_t>(way)];
    known = std::min(known == unknown ? unknown : known + known / 128 + 1, took);  // old times count less and less
    const auto fastest = std::ranges::min_element(least);
    const std::uint64_t present = least[static_cast<std::size_t>(preferred_.of(of))];
    const bool stays = present == unknown || present * 19 / 20 <= *fastest;
    if (!stays) preferred_.set(of, static_cast<MessageWay>(fastest - least.begin()));
    return preferred_;
  }

 private:
  static constexpr std::uint64_t unknown = UINT64_MAX;
  using Times = std::array<std::uint64_t, message_ways>;
  [[nodiscard]] static constexpr std::array<Times, tuning::message_classes> all_unknown() noexcept {
    std::array<Times, tuning::message_classes> out = {};
    for (Times& each : out) each.fill(unknown);
    return out;
  }
  [[nodiscard]] bool knows_another(std::size_t of, MessageWay way) const noexcept {
    for (std::size_t other = 0; other < message_ways; ++other) {
      if (other != static_cast<std::size_t>(way) && least_[of][other] != unknown) return true;
    }
    return false;
  }

  std::array<Times, tuning::message_classes> least_ = all_unknown();
  std::array<std::uint32_t, tuning::message_classes> passed_ = {};  ///< messages of which wants() has asked only some
  PreferredWays preferred_;
};

}  // namespace amldist::collective
