// The messages between this rank and another one over their connection. A message is preceded by its signature and
// length.
//
// One system call moves as many messages as there are, within limits: with a call for each short message, the calls
// would take ten times as long as all else. What arrives behind the expected messages is kept until their receives are
// posted.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/os/file_descriptor.hpp"
#include "collective/transport/message_queue.hpp"
#include "collective/transport/transport.hpp"
#include "world/wireup/message_code.hpp"

namespace amldist::collective {

/// Used by one thread at a time, like the transport that it belongs to.
class TcpStream {
 public:
  /// Of one connection, if messages are followed by codes.
  struct Codes {
    world::MessageCodes of_sent;
    world::MessageCodes of_received;
  };

  /// A system call that has so many bytes gets no further message.
  static constexpr std::size_t most_bytes = 512UL << 10;

  /// `code_bytes`: of the code behind each message; 0: none. `most` is for tests.
  explicit TcpStream(std::size_t code_bytes, std::size_t most = most_bytes) noexcept
      : code_bytes_(code_bytes), most_bytes_(most) {}

  [[nodiscard]] bool is_open() const noexcept { return static_cast<bool>(socket_); }
  void open(FileDescriptor socket, std::optional<Codes> codes);
  [[nodiscard]] int socket() const noexcept { return socket_.get(); }

  /// Adds a message; returns whether it is the only one in its direction. `number`: larger than those before.
  bool add(const Message& message, Direction direction, std::size_t& left, std::uint64_t number = 0);
  /// The number of the oldest message, of which there must be one.
  [[nodiscard]] std::uint64_t oldest(Direction direction) const noexcept {
    return (direction == Direction::send ? sends_ : receives_).all().front().number;
  }
  [[nodiscard]] bool is_idle(Direction direction) const noexcept {
    return direction == Direction::send ? sends_.is_empty() : receives_.is_empty();
  }
  /// Moves what the connection takes or has, in an open stream; returns whether anything moved. `own_name`: of this
  /// rank, for errors.
  [[nodiscard]] Result<bool> move(Direction direction, const std::string& own_name, calls::Watchdog& watchdog) {
    return direction == Direction::send ? push(own_name, watchdog) : pull(own_name, watchdog);
  }
  /// Forgets all messages.
  void give_up() noexcept;

 private:
  static constexpr std::size_t header_bytes = 16;
  static constexpr std::size_t most_at_once = 8UL << 20;  ///< bytes; about what the kernel holds of a connection

  /// A message under way.
  struct Progress {
    Progress(const Message& all, std::size_t* counter, std::size_t behind, std::uint64_t which) noexcept
        : message(all), left(counter), code_bytes(behind), number(which) {}
    Message message;
    std::size_t* left;
    std::size_t code_bytes;
    std::uint64_t number;
    std::array<std::uint64_t, 2> header = {};  ///< signature and length
    std::size_t done = 0;                      ///< bytes of header, data and code
    world::MessageCode code = {};
    bool has_code = false;  ///< of a message to send
    [[nodiscard]] std::size_t all() const noexcept { return header_bytes + message.bytes + code_bytes; }
    [[nodiscard]] bool is_done() const noexcept { return done == all(); }
    /// Whether the message may be shorter than its buffer, and its header has not arrived yet.
    [[nodiscard]] bool has_unknown_length() const noexcept { return message.is_most && done < header_bytes; }
    [[nodiscard]] std::span<const std::byte> data() const noexcept { return {message.data, message.bytes}; }
  };
  /// Memory for one system call.
  class Parts;
  struct Received {
    ssize_t bytes;         ///< below zero: errno
    std::size_t in_place;  ///< so many of them at most; those behind are early
    std::size_t room;
  };

  /// Whether so much goes both ways that sending and receiving take turns.
  [[nodiscard]] bool takes_turns() const noexcept { return std::min(bytes_to_send_, bytes_to_receive_) > most_at_once; }
  [[nodiscard]] Result<bool> push(const std::string& own_name, calls::Watchdog& watchdog);
  [[nodiscard]] Result<bool> pull(const std::string& own_name, calls::Watchdog& watchdog);
  void add_sends(Parts& parts, std::size_t most);
  [[nodiscard]] ssize_t send(Parts& parts) const noexcept;
  [[nodiscard]] Received receive(Parts& parts, bool are_short);
  [[nodiscard]] bool add_receives(Parts& parts, std::size_t most);
  void count_sent(std::size_t bytes) noexcept;
  [[nodiscard]] Result<void> count_received(std::size_t bytes, calls::Watchdog& watchdog);
  [[nodiscard]] static Result<void> check_header(Progress& receive, calls::Watchdog& watchdog);
  [[nodiscard]] Result<void> check_code(const Progress& receive, calls::Watchdog& watchdog);
  [[nodiscard]] Result<bool> take_early(calls::Watchdog& watchdog);

  std::size_t code_bytes_;
  std::size_t most_bytes_;
  bool has_looked_in_vain_ = false;  ///< in the last call to receive
  FileDescriptor socket_;
  std::optional<Codes> codes_;
  MessageQueue<Progress> sends_;
  MessageQueue<Progress> receives_;
  std::size_t bytes_to_send_ = 0;     ///< of the messages under way
  std::size_t bytes_to_receive_ = 0;  ///< the same, as far as their lengths are known
  std::vector<std::byte> early_;      ///< memory for what arrives behind the expected messages
  /// The bytes in it that have not been taken yet lie between these two. If a message is still expected when move()
  /// returns, there are none: a rank never sleeps while what it waits for is here.
  std::size_t early_begin_ = 0;
  std::size_t early_end_ = 0;
};

}  // namespace amldist::collective
