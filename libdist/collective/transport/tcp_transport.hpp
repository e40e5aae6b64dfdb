// Messages over TCP: one connection per pair of ranks, made on first use.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "collective/transport/tcp_stream.hpp"
#include "collective/transport/transport.hpp"
#include "world/control/control_channel.hpp"

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
  [[nodiscard]] bool posts_at_once(int peer, int /*tag*/) const noexcept override {
    return streams_[static_cast<std::size_t>(peer)].is_open();
  }
  [[nodiscard]] Result<bool> progress(calls::Watchdog& watchdog) override;
  [[nodiscard]] int awaited() const noexcept override;
  bool rest(int idle) override;
  void interrupt() noexcept override;
  void give_up() noexcept override;

 private:
  /// Whether the connection exists. The side that does not initiate it may have to wait.
  [[nodiscard]] bool is_connected(int peer);
  void open(int peer, FileDescriptor connection);
  [[nodiscard]] TcpStream& stream(int peer) noexcept { return streams_[static_cast<std::size_t>(peer)]; }
  [[nodiscard]] std::uint32_t member(int peer) const noexcept {
    return watch_.members()[static_cast<std::size_t>(peer)];
  }
  [[nodiscard]] Result<bool> advance(std::vector<int>& peers, Direction direction, calls::Watchdog& watchdog);
  bool sleep();

  world::ControlChannel& channel_;
  const world::CommWatch& watch_;
  const std::uint64_t id_;
  FileDescriptor interrupted_;
  std::atomic<bool> is_interrupted_ = false;  ///< the descriptor has been written, and not read
  const std::string own_name_;
  std::vector<TcpStream> streams_;  ///< by rank
  std::vector<int> sending_;        ///< ranks to which messages are under way
  std::vector<int> receiving_;      ///< those from which messages are expected
  std::uint64_t posted_ = 0;        ///< messages until now
  const bool oversubscribed_;
  Clock::time_point idle_since_;
};

}  // namespace amldist::collective
