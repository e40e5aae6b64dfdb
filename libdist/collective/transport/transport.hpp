// Messages between the ranks of one communicator: several sends and receives at once, none of which can block another.
// What carries them is behind this interface: TCP everywhere, MPI where the processes have it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "collective/calls/watchdog.hpp"

namespace amldist::collective {

/// One message. `peer` is a rank of the communicator, other than the own one. Signature and length travel with the
/// data: a receiver that expects something else says so instead of taking the wrong bytes.
struct Message {
  int peer = 0;
  std::byte* data = nullptr;  ///< a send only reads it
  std::size_t bytes = 0;
  std::uint32_t signature = 0;
  bool has_room = false;  ///< of a receive: `Transport::room` bytes in front of the data may be overwritten
};

enum class Direction : std::uint8_t { send, receive };

/// Used by one thread at a time, but for interrupt(). Not used again after an error, but for give_up().
class Transport {
 public:
  static constexpr std::size_t room = 64;
  /// What Linux passes to a network device at once for a TCP connection, of ours or of MPI's, less their headers: 45
  /// segments of 1448 bytes, or 7 of 8948 (jumbo frames), rounded down. The tail of a longer message goes by itself,
  /// and each end handles two packets in place of one.
  static constexpr std::size_t one_packet = (60UL << 10) - 256;

  virtual ~Transport() = default;
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  /// "tcp", "mpi"; static.
  [[nodiscard]] virtual std::string_view name() const noexcept = 0;
  /// A long message is best cut into parts of so many bytes, if the first can be used while the others come: a multiple
  /// of cache lines.
  [[nodiscard]] virtual std::size_t part_bytes() const noexcept = 0;
  /// Whether any thread may use it, or only the one from which the program makes its calls.
  [[nodiscard]] virtual bool serves_any_thread() const noexcept = 0;

  /// Takes a message up, and never waits for a call of the peer's: whatever the peer does first can be taken up next.
  /// Adds to `left`; when progress() has taken that off again, the message is through. Data and `left` stay valid until
  /// then. Messages between the same two ranks arrive in the order in which they were taken up.
  [[nodiscard]] virtual Result<void> post(const Message& message, Direction direction, std::size_t& left,
                                          Watchdog& watchdog) = 0;
  /// Moves what can be moved, without waiting; whether anything was.
  [[nodiscard]] virtual Result<bool> progress(Watchdog& watchdog) = 0;
  /// After `idle` looks in vain: lets others have the processor if that is wise, for a few milliseconds at most.
  /// Whether it is time to ask the watchdog.
  virtual bool rest(int idle) = 0;
  /// The peer of the first receive, else of the first send, that is under way.
  [[nodiscard]] virtual int awaited() const noexcept = 0;
  /// Asks the watchdog about what is awaited; also about every peer of whose end the transport does not hear by itself.
  [[nodiscard]] virtual Result<void> keep_waiting(Watchdog& watchdog) { return watchdog.keep_waiting(awaited()); }
  /// Ends a rest() on another thread.
  virtual void interrupt() noexcept {}
  /// Forgets all messages, after an error.
  virtual void give_up() noexcept = 0;

  /// Runs all messages to their end.
  [[nodiscard]] Result<void> exchange(std::span<const Message> sends, std::span<const Message> receives,
                                      Watchdog& watchdog) {
    return exchange(sends, receives, watchdog, nullptr);
  }
  /// `received` is told of each receive, in their order, while others are still under way.
  using Received = std::function<void(std::size_t index)>;
  [[nodiscard]] Result<void> exchange(std::span<const Message> sends, std::span<const Message> receives,
                                      Watchdog& watchdog, const Received& received) {
    return exchange(sends, receives, watchdog, &received);
  }

 private:
  [[nodiscard]] Result<void> exchange(std::span<const Message> sends, std::span<const Message> receives,
                                      Watchdog& watchdog, const Received* received);
  [[nodiscard]] Result<void> run(std::span<const Message> sends, std::span<const Message> receives, Watchdog& watchdog,
                                 const Received* received);

  std::vector<std::size_t> lefts_;  ///< of each receive, where somebody is to be told
};

}  // namespace amldist::collective
