// Arenas: memory of one rank that the other ranks of its node have mapped too; amldist_alloc() allocates from it. To
// the other ranks an address in it is a rank and an offset. Collectives read and write it without copying (zero-copy).
//
// Each rank creates one arena, and all ranks map all arenas at setup. Address space is reserved then; physical pages
// are allocated on first touch and returned when freed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collective/node/shared_memory.hpp"

namespace amldist::collective {

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

  /// Offset of a range within one allocation of this rank's arena; nullopt for any other memory, which takes a few
  /// nanoseconds.
  [[nodiscard]] std::optional<std::uint64_t> offset_of(const void* data, std::size_t bytes) const;
  /// A range of a rank's arena, at the offset that this rank told, as an address in this process; nullptr: such a range
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

  std::size_t rank_;
  std::vector<SharedMemory> arenas_;
  std::map<std::uint64_t, std::uint64_t> used_;  ///< offset -> bytes, in whole pages
};

}  // namespace amldist::collective
