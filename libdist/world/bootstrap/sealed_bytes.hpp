// Bytes in memory that cannot be changed any more: one process makes them, others read them. They have no name; readers
// get their descriptor over a Unix socket.
#pragma once

#include <memory>
#include <string_view>

#include "base/os/file_descriptor.hpp"
#include "base/text/result.hpp"
#include "base/time/clock.hpp"
#include "world/wireup/frame.hpp"

namespace amldist::world {

class SealedBytes {
 public:
  /// Errors: unavailable.
  [[nodiscard]] static Result<SealedBytes> create(std::string_view content);
  /// Maps memory that another process made. Errors: peer, when it is not sealed; unavailable.
  [[nodiscard]] static Result<SealedBytes> open(FileDescriptor file);

  [[nodiscard]] std::string_view bytes() const noexcept { return bytes_; }
  /// Keeps the bytes mapped.
  [[nodiscard]] const std::shared_ptr<const void>& owner() const noexcept { return owner_; }
  [[nodiscard]] const FileDescriptor& file() const noexcept { return file_; }

 private:
  [[nodiscard]] static Result<SealedBytes> map(FileDescriptor file);

  FileDescriptor file_;
  std::string_view bytes_;
  std::shared_ptr<const void> owner_;
};

/// Sends a frame of up to some hundred bytes with a descriptor, over a Unix socket that has nothing else to send. False
/// if the peer has gone or does not read.
[[nodiscard]] bool send_with_file(const FileDescriptor& socket, std::string_view frame, const FileDescriptor& file);

/// A frame, and the descriptor that came with it, if any.
struct FrameWithFile {
  world::Frame frame;
  FileDescriptor file;
};
/// Errors: as read_frame().
[[nodiscard]] Result<FrameWithFile> read_frame_with_file(const FileDescriptor& socket, Clock::time_point deadline);

}  // namespace amldist::world
