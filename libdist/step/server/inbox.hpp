// Which of the datagrams that reach srun's port are messages of its step: with the code that only the step's key gives,
// not a repetition of one that has come, and not held back on their way. The others are counted.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/time/clock.hpp"
#include "step/messages/datagram.hpp"

namespace amldist::step {

/// Memory: half a kilobyte for each sender that has the key, at most `most_senders`. A datagram without the code costs
/// time in proportion to its length, and no memory.
class Inbox {
 public:
  /// Who sends, from a node: slurmstepd, and the tool that it starts to verify the fabric.
  static constexpr std::size_t senders_of_node = 8;

  /// `nodes`: of the step; 0: not known.
  Inbox(const Token& token, std::uint32_t nodes);

  struct Letter {
    Stamp stamp;          ///< for the answer
    std::string message;  ///< with the token's mark
    /// It came more than ten seconds later than the fastest of the same sender. A fact (a task has ended) is true all
    /// the same; what a rank waits for now it may not say any more.
    bool is_late = false;
  };
  /// nullopt: not a message of this step, or one that has come already.
  [[nodiscard]] std::optional<Letter> take(std::string_view datagram, Clock::time_point now);
  /// A late letter that was not used.
  void count_late() noexcept { ++late_; }

  /// What was dropped: "12 datagrams came to ... and were dropped: 10 without the step's code, 2 repeated, 0 too late";
  /// empty if nothing was.
  [[nodiscard]] std::string dropped(std::string_view where) const;

 private:
  /// The last messages of a sender. One that is older than all of them counts as repeated.
  struct Sender {
    std::array<std::uint64_t, 64> seen{};  ///< times in their stamps
    std::uint64_t floor = 0;               ///< the latest time that had to make room for another
    std::int64_t delay = 0;                ///< receiver's clock less the sender's, of the fastest message, in ns
    std::int64_t heard_at = 0;
  };
  [[nodiscard]] static bool is_new(Sender& sender, std::uint64_t time);
  [[nodiscard]] static bool is_late(Sender& sender, std::uint64_t time, std::int64_t now);

  Token token_;
  std::size_t most_senders_;
  std::unordered_map<std::uint64_t, Sender> senders_;
  std::uint64_t without_code_ = 0;
  std::uint64_t repeated_ = 0;
  std::uint64_t late_ = 0;
};

}  // namespace amldist::step
