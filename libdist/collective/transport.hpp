// Messages between the ranks of one communicator: several sends and receives at once, none of which can block another.
//
// Over TCP, one connection for each pair that talks, made when it first does. Every message begins with its signature
// and its length, so that a receiver that expects something else says so instead of taking the wrong bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collective/control_channel.hpp"

namespace amldist::collective {

/// One message. `peer` is a rank of the communicator, other than the own one.
struct Message {
  int peer = 0;
  std::byte* data = nullptr;  ///< a send only reads it
  std::size_t bytes = 0;
  std::uint32_t signature = 0;
};

/// A message in progress. Internal to the transport, and here because it is kept between calls.
struct MessageProgress {
  Message message;
  std::uint64_t header[2] = {0, 0};
  std::size_t done = 0;  ///< bytes of header and data
};

class Transport {
 public:
  /// `watch` tells the communicator's ranks. Both outlive this object.
  Transport(ControlChannel& channel, const CommWatch& watch);

  [[nodiscard]] int rank() const noexcept { return static_cast<int>(watch_.rank()); }
  [[nodiscard]] int size() const noexcept { return static_cast<int>(watch_.members().size()); }

  /// Runs all messages to their end. Messages between the same two ranks arrive in the order of the lists.
  [[nodiscard]] Result<void> exchange(std::span<const Message> sends, std::span<const Message> receives, Vigil& vigil);

 private:
  [[nodiscard]] Result<void> connect(int peer, Vigil& vigil);
  [[nodiscard]] Result<bool> push(MessageProgress& send, Vigil& vigil);
  [[nodiscard]] Result<bool> pull(MessageProgress& receive, Vigil& vigil);
  /// Moves what can be moved; true if anything was.
  [[nodiscard]] Result<bool> progress(Vigil& vigil);
  void wait_a_little();

  ControlChannel& channel_;
  const CommWatch& watch_;
  std::vector<FileDescriptor> connections_;  // by rank
  std::vector<MessageProgress> sends_;
  std::vector<MessageProgress> receives_;
  std::vector<std::uint64_t> busy_;  // by rank: the pass of progress() in which an earlier message had its turn
  std::uint64_t pass_ = 0;
};

}  // namespace amldist::collective
