// Messages between the ranks of one communicator: several sends and receives at once, none of which blocks another.
// Implementations: TCP, MPI, rings in shared memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "calls/watchdog.hpp"
#include "collective/node/channel/timed_pauses.hpp"

namespace amldist::collective {

/// One message. `peer` is another rank of the communicator. Signature and length travel with the data: a receiver that
/// expects something else reports an error instead of taking the wrong bytes.
struct Message {
  static constexpr int untagged = -1;

  int peer = 0;               ///< Watchdog::anyone: of a receive with a tag
  std::byte* data = nullptr;  ///< a send only reads it
  std::size_t bytes = 0;
  std::uint32_t signature = 0;
  bool has_room = false;  ///< of a receive: `Transport::room` bytes before the data may be overwritten
  int tag = untagged;     ///< other ones are for a MatchingTransport
  int* source = nullptr;  ///< of a receive with a tag: gets the peer; or null
  bool is_most = false;   ///< of a receive: a shorter message is taken, too (not over MPI)
};

enum class Direction : std::uint8_t { send, receive };

/// Used by one thread at a time, except interrupt(). After an error, only give_up() may be called.
class Transport {
 public:
  static constexpr std::size_t room = 64;
  /// The most that Linux passes to a network device at once for a TCP connection, without the headers of this library
  /// or of MPI: 45 segments of 1448 bytes, or 7 of 8948 (jumbo frames), rounded down. The rest of a longer message
  /// would be a second packet, which both ends must handle.
  static constexpr std::size_t one_packet = (60UL << 10) - 256;

  virtual ~Transport() = default;
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  /// "tcp", "mpi"; static.
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// The part size for long messages whose first part can be used while the others arrive: a multiple of the cache
  /// line.
  [[nodiscard]] virtual std::size_t part_bytes() const noexcept = 0;
  /// Whether any thread may use it, or only the thread from which the program makes its calls.
  [[nodiscard]] virtual bool serves_any_thread() const noexcept = 0;

  /// Starts a message. It never waits for the peer's call, so any order of the peer's calls works. It adds to `left`,
  /// unless the message is complete at once; progress() subtracts that again when it is. Data and `left` must stay
  /// valid until then. Messages between the same two ranks arrive in the order in which they were posted.
  [[nodiscard]] virtual Result<void> post(const Message& message, Direction direction, std::size_t& left,
                                          calls::Watchdog& watchdog) = 0;
  /// Whether any thread may call post() for messages with this rank, and it never waits for a connection.
  [[nodiscard]] virtual bool posts_at_once(int /*peer*/, int /*tag*/) const noexcept { return false; }
  /// Whether ranks of the node share processors, so that one that looks in vain should let others run.
  [[nodiscard]] virtual bool shares_processors() const noexcept { return false; }
  /// How often a brief look looks then, with a yield between two of them.
  static constexpr int looks_of_shared_processors = 4;
  /// How long move_at_once() looks for what is to be received.
  enum class Look : std::uint8_t { once, briefly };
  /// Moves a short message now, if none of this pair comes before it and the other rank has done its part: what is sent
  /// has room, what is received has arrived. false: nothing has happened; post() the message. But if it looks briefly,
  /// a long message may have begun: then the next post() with this rank must be of this message, and goes on with it.
  [[nodiscard]] virtual bool move_at_once(const Message& /*message*/, Direction /*direction*/, Look /*look*/) {
    return false;
  }
  /// Directly after move_at_once() has moved this message: when that looked for it in vain. nullopt: not known, or
  /// copying took time of its own.
  [[nodiscard]] virtual std::optional<VainLooks> vain_looks(const Message& /*moved*/) const noexcept {
    return std::nullopt;
  }
  /// Makes progress without waiting; returns whether anything moved.
  [[nodiscard]] virtual Result<bool> progress(calls::Watchdog& watchdog) = 0;
  /// The watchdog is asked after so many calls of progress() at the latest: what moves may be others' messages alone.
  static constexpr int most_rounds_unasked = 1024;
  /// Backs off after `idle` unsuccessful polls: it may yield or sleep, for a few milliseconds at most. Returns whether
  /// it is time to ask the watchdog.
  virtual bool rest(int idle) = 0;
  /// The peer of the first receive under way, or else of the first send.
  [[nodiscard]] virtual int awaited() const noexcept = 0;
  /// Asks the watchdog about the awaited peer, and about every peer whose death the transport does not notice itself.
  [[nodiscard]] virtual Result<void> keep_waiting(calls::Watchdog& watchdog) {
    return watchdog.keep_waiting(awaited());
  }
  /// Ends a rest() of another thread.
  virtual void interrupt() noexcept {}
  /// Forgets all messages, after an error.
  virtual void give_up() noexcept = 0;

  /// Runs all messages to completion.
  [[nodiscard]] Result<void> exchange(std::span<const Message> sends, std::span<const Message> receives,
                                      calls::Watchdog& watchdog) {
    return exchange(sends, receives, watchdog, nullptr);
  }
  /// `received` is called for each receive, in order, while others are still under way.
  using Received = std::function<void(std::size_t index)>;
  [[nodiscard]] Result<void> exchange(std::span<const Message> sends, std::span<const Message> receives,
                                      calls::Watchdog& watchdog, const Received& received) {
    return exchange(sends, receives, watchdog, &received);
  }

 private:
  [[nodiscard]] Result<void> exchange(std::span<const Message> sends, std::span<const Message> receives,
                                      calls::Watchdog& watchdog, const Received* received);
  [[nodiscard]] Result<void> run(std::span<const Message> sends, std::span<const Message> receives,
                                 calls::Watchdog& watchdog, const Received* received);

  std::vector<std::size_t> lefts_;  ///< of each receive, if `received` is to be called
};

}  // namespace amldist::collective
