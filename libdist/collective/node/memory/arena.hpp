// Arenas: memory of one rank that the other ranks of its node have mapped too; amldist_alloc() allocates from it. To
// the other ranks an address in it is a rank and an offset. Collectives read and write it without copying (zero-copy).
// amldist_register() makes memory of the program a part of it.
//
// Each rank creates one arena, and all ranks map all arenas at setup. Address space is reserved then; physical pages
// are allocated on first touch and returned when freed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collective/node/memory/registered_memory.hpp"
#include "collective/node/memory/shared_memory.hpp"

namespace amldist::collective {

/// Memory is allocated and registered by one thread at a time; offset_of() may be asked by another one meanwhile.
class Arenas {
 public:
  /// Creates this rank's own arena, before the others are known. Errors: limit (address space), unavailable.
  [[nodiscard]] static Result<Arenas> create(std::size_t rank, std::size_t ranks);
  /// The address by which the other ranks open this rank's arena.
  [[nodiscard]] std::string address() const { return own().address(); }
  /// Maps the arena of another rank of the node. Errors: those of SharedMemory::open().
  [[nodiscard]] Result<void> open(std::size_t rank, const std::string& address);

  /// Zeroed memory, aligned to a page. Errors: limit.
  [[nodiscard]] Result<void*> allocate(std::size_t bytes);
  /// Errors: invalid_argument for memory that allocate() did not return.
  [[nodiscard]] Result<void> release(void* memory);

  /// Puts memory of the program into the arena, with its contents, at its present address. Errors: invalid_argument
  /// (see check_whole_pages(); not private memory; a part is registered), unavailable, limit.
  [[nodiscard]] Result<void> register_memory(void* memory, std::size_t bytes);
  /// Takes it out again, with its contents. Errors: invalid_argument for memory that is not registered, and those of
  /// RegisteredMemory::restore().
  [[nodiscard]] Result<void> deregister_memory(void* memory);
  /// Whether memory can be registered, judged by its address and length. Errors: invalid_argument.
  [[nodiscard]] static Result<void> check_whole_pages(const void* memory, std::size_t bytes);

  using Access = RegisteredMemory::Access;
  /// Offset of a range within one allocation of this rank's arena, or of registered memory that is still there (see
  /// RegisteredMemory::has(), also for `access`); nullopt for any other memory, which takes a few nanoseconds.
  [[nodiscard]] std::optional<std::uint64_t> offset_of(const void* data, std::size_t bytes, Access access) const;
  /// A range of a rank's arena, at the offset that this rank gave, as an address in this process; nullptr if the range
  /// is not in its arena.
  [[nodiscard]] std::byte* at(std::size_t rank, std::uint64_t offset, std::size_t bytes) const noexcept {
    const SharedMemory& arena = arenas_[rank];
    return offset <= arena.size() && bytes <= arena.size() - offset ? arena.data() + offset : nullptr;
  }

  /// Bytes of address space per arena, for `ranks` arenas.
  [[nodiscard]] static std::size_t reserved_bytes(std::size_t ranks) noexcept;

 private:
  Arenas(std::size_t rank, std::vector<SharedMemory> arenas) : rank_(rank), arenas_(std::move(arenas)) {}
  [[nodiscard]] const SharedMemory& own() const { return arenas_[rank_]; }
  [[nodiscard]] Result<std::uint64_t> take(std::size_t bytes, std::string_view asker);
  void give_back(std::map<std::uint64_t, std::uint64_t>::iterator block);
  [[nodiscard]] std::optional<std::uint64_t> offset_of_registered(const std::byte* data, std::size_t bytes,
                                                                  Access access) const;
  [[nodiscard]] Result<void> forget_what_was_remapped(std::uintptr_t address, std::size_t bytes);

  struct Tables {
    std::mutex mutex;                                       ///< for everything here
    std::map<std::uint64_t, std::uint64_t> used;            ///< offset -> bytes, in whole pages
    std::map<std::uintptr_t, RegisteredMemory> registered;  ///< by address
    std::atomic<bool> has_registered = false;               ///< read without the mutex
  };

  std::size_t rank_;
  std::vector<SharedMemory> arenas_;
  std::unique_ptr<Tables> tables_ = std::make_unique<Tables>();
  MappingQuery query_;
};

}  // namespace amldist::collective
