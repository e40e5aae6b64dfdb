// Messages over TCP: one connection per pair of ranks, made on first use. A message is preceded by its signature and
// length.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <optional>
#include <span>
#include <vector>

#include "collective/transport/transport.hpp"
#include "world/control/control_channel.hpp"
#include "world/wireup/message_code.hpp"

namespace amldist::collective {

class TcpTransport final : public Transport {
 public:
  /// `watch` knows the communicator's ranks. `id` distinguishes these connections from those of other transports.
  /// `oversubscribed`: fewer processors than ranks on this machine. Channel and watch outlive this object.
  TcpTransport(world::ControlChannel& channel, const world::CommWatch& watch, std::uint64_t id, bool oversubscribed);
  ~TcpTransport() override { channel_.forget_data_connections(id_); }
  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;

  [[nodiscard]] std::string_view name() const noexcept override;
  [[nodiscard]] std::size_t part_bytes() const noexcept override { return one_packet; }
  [[nodiscard]] bool serves_any_thread() const noexcept override { return true; }
  [[nodiscard]] Result<void> post(const Message& message, Direction direction, std::size_t& left,
                                  calls::Watchdog& watchdog) override;
  [[nodiscard]] Result<bool> progress(calls::Watchdog& watchdog) override;
  [[nodiscard]] int awaited() const noexcept override;
  bool rest(int idle) override;
  void interrupt() noexcept override;
  void give_up() noexcept override;

 private:
  struct Progress {
    Message message;
    std::size_t* left = nullptr;
    std::uint64_t header[2] = {0, 0};
    std::size_t done = 0;        ///< bytes of header, data and code
    std::size_t code_bytes = 0;  ///< of the code
    world::MessageCode code = {};
    bool has_code = false;  ///< of a message to send
    [[nodiscard]] bool is_done() const noexcept { return done == sizeof header + message.bytes + code_bytes; }
    [[nodiscard]] std::span<const std::byte> data() const noexcept { return {message.data, message.bytes}; }
  };
  /// Of one connection.
  struct Codes {
    world::MessageCodes of_sent;
    world::MessageCodes of_received;
  };
  [[nodiscard]] Codes& codes_with(int peer);
  /// The rest of a message, in at most three pieces.
  [[nodiscard]] static std::size_t parts_left(Progress& each, iovec* parts) noexcept;

  /// Whether the connection exists. The side that does not initiate it may have to wait.
  [[nodiscard]] bool is_connected(int peer);
  [[nodiscard]] Result<bool> push(Progress& send, calls::Watchdog& watchdog);
  [[nodiscard]] Result<bool> pull(Progress& receive, calls::Watchdog& watchdog);
  [[nodiscard]] Error bad_buffer(const Message& message, std::string_view verb) const;
  bool sleep();
  template <typename Move>
  [[nodiscard]] Result<bool> advance(std::vector<Progress>& list, Move move);

  world::ControlChannel& channel_;
  const world::CommWatch& watch_;
  const std::uint64_t id_;
  FileDescriptor interrupted_;
  std::atomic<bool> is_interrupted_ = false;  ///< the descriptor has been written, and not read
  std::vector<FileDescriptor> connections_;   // by rank
  std::vector<std::optional<Codes>> codes_;   // by rank
  const std::size_t code_bytes_;              // appended to a message
  std::vector<Progress> sends_;
  std::vector<Progress> receives_;
  std::vector<std::uint64_t> busy_;  // by rank: the last pass of advance() in which a message of this pair was served
  std::uint64_t pass_ = 0;
  const bool oversubscribed_;
  Clock::time_point idle_since_;
};

}  // namespace amldist::collective
