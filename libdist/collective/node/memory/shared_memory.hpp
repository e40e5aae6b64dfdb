// Memory that the processes of one node share. It is a memfd, which has no name, so nothing can be left behind, and
// whose size is sealed, so that no process can shrink it under another. Other processes open it through /proc/PID/fd of
// the process that created it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "base/os/file_descriptor.hpp"
#include "base/text/result.hpp"

namespace amldist::collective {

/// A mapping, unmapped on destruction. Physical pages are allocated on first touch.
class SharedMemory {
 public:
  SharedMemory() = default;
  SharedMemory(SharedMemory&& other) noexcept
      : file_(std::move(other.file_)),
        data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)) {}
  SharedMemory& operator=(SharedMemory&& other) noexcept {
    std::swap(file_, other.file_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  /// Creates zeroed memory that this user's processes can read and write. Errors: limit, unavailable.
  [[nodiscard]] static Result<SharedMemory> create(std::size_t bytes);
  /// Opens what `address()` of another process of this node returned. The text is not trusted: only a memfd of this
  /// user with a sealed size of `bytes` is mapped. Errors: unavailable (/proc hidden, the process has ended), mismatch
  /// (something else, another PID namespace), limit.
  [[nodiscard]] static Result<SharedMemory> open(const std::string& address, std::size_t bytes);

  /// "PROCESS:FILE:INODE", for open() in another process; valid while this object exists and has its file.
  [[nodiscard]] std::string address() const;
  /// Closes the descriptor; the mapping stays. After that no process can open it.
  void close_file() { file_ = FileDescriptor(); }

  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t size() const noexcept { return bytes_; }
  /// The name of such memory in the kernel's lists of mappings.
  static constexpr const char* name = "amldist";
  [[nodiscard]] std::uint64_t inode() const noexcept;
  [[nodiscard]] const FileDescriptor& file() const noexcept { return file_; }

 private:
  [[nodiscard]] Result<void> map(std::size_t bytes);

  FileDescriptor file_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace amldist::collective
