// Messages over TCP: one connection for each pair that talks, made when it first does. In front of every message go its
// signature and its length.
#pragma once

#include <vector>

#include "collective/control_channel.hpp"
#include "collective/transport.hpp"

namespace amldist::collective {

class TcpTransport final : public Transport {
 public:
  /// `watch` tells the communicator's ranks. Both outlive this object.
  TcpTransport(ControlChannel& channel, const CommWatch& watch);

  [[nodiscard]] std::string_view name() const noexcept override { return "tcp"; }
  [[nodiscard]] bool serves_any_thread() const noexcept override { return true; }
  [[nodiscard]] Result<void> exchange(std::span<const Message> sends, std::span<const Message> receives,
                                      Vigil& vigil) override;

 private:
  struct Progress {
    Message message;
    std::uint64_t header[2] = {0, 0};
    std::size_t done = 0;  ///< bytes of header and data
    [[nodiscard]] bool is_done() const noexcept { return done == sizeof header + message.bytes; }
  };

  [[nodiscard]] Result<void> connect(int peer, Vigil& vigil);
  [[nodiscard]] Result<void> connect_all(Vigil& vigil);
  [[nodiscard]] Result<bool> push(Progress& send, Vigil& vigil);
  [[nodiscard]] Result<bool> pull(Progress& receive, Vigil& vigil);
  /// Moves what can be moved; true if anything was.
  [[nodiscard]] Result<bool> progress(Vigil& vigil);
  void wait_a_little();

  ControlChannel& channel_;
  const CommWatch& watch_;
  std::vector<FileDescriptor> connections_;  // by rank
  std::vector<Progress> sends_;
  std::vector<Progress> receives_;
  std::vector<std::uint64_t> busy_;  // by rank: the pass of progress() in which an earlier message had its turn
  std::uint64_t pass_ = 0;
};

}  // namespace amldist::collective
