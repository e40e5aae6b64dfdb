// Memory of the program that lies in an arena while it is registered: the same addresses, other pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/memory/memory_map.hpp"
#include "collective/node/memory/shared_memory.hpp"

namespace amldist::collective {

/// From construction to destruction a range of the program's addresses shows pages of a SharedMemory. Each exchange of
/// pages is one system call: no thread ever finds a gap, and only what is written while the contents are being copied
/// is lost. A child of fork() gets private pages with a copy of the contents, as for any memory of its parent.
class RegisteredMemory {
 public:
  /// Whole pages that are private to this process. Their contents are copied to `offset` of `shared`, and those pages
  /// then take their place. Errors: limit.
  [[nodiscard]] static Result<RegisteredMemory> place(void* memory, std::size_t bytes, const SharedMemory& shared,
                                                      std::uint64_t offset);
  /// Gives the range private pages again, with its contents. Errors: limit and unavailable, with nothing changed;
  /// invalid_argument: the program has unmapped or remapped the range, which is left alone.
  [[nodiscard]] Result<void> restore();

  RegisteredMemory(RegisteredMemory&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)),
        bytes_(other.bytes_),
        inode_(other.inode_),
        offset_(other.offset_) {}
  RegisteredMemory& operator=(RegisteredMemory&&) = delete;
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;
  /// What cannot be restored stays shared memory, kept by the mapping alone.
  ~RegisteredMemory();

  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }

  enum class Access : std::uint8_t { read, written };  ///< by a call, which alone may touch what it writes
  /// Whether `bytes` at `part`, in the range, still are its pages: the program may have freed them, and have got other
  /// ones at the same address. Asks the kernel; an older one than `query` wants, of memory that the call writes, writes
  /// and restores its first and last byte in `shared`, and else trusts nothing.
  [[nodiscard]] bool has(const std::byte* part, std::size_t bytes, Access access, const MappingQuery& query,
                         const SharedMemory& shared) const;
  /// The same for the whole range, by reading /proc/self/maps. Errors: unavailable.
  [[nodiscard]] Result<bool> is_in_place() const;

 private:
  RegisteredMemory(void* memory, std::size_t bytes, std::uint64_t inode, std::uint64_t offset) noexcept
      : memory_(memory), bytes_(bytes), inode_(inode), offset_(offset) {}

  void* memory_;  ///< nullptr if restored
  std::size_t bytes_;
  std::uint64_t inode_;
  std::uint64_t offset_;
};

}  // namespace amldist::collective
