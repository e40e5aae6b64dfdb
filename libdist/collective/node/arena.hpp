// Memory of one rank that the other ranks of its node have mapped as well: what amldist_alloc() gives. An address
// within it is, for the others, a rank and an offset; collectives read and write it without copying.
//
// Every rank makes one arena, of which all map all when they set up; addresses are reserved then, pages are taken from
// the machine when they are touched, and given back when they are freed.
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
  /// This rank's own arena, before the others are known. Errors: limit (address space), unavailable.
  [[nodiscard]] static Result<Arenas> create(std::size_t rank, std::size_t ranks);
  /// Where the others open the own one.
  [[nodiscard]] std::string address() const { return own().address(); }
  /// Maps the arenas of the others, by rank of the node; the own entry is ignored.
  [[nodiscard]] Result<void> open(const std::vector<std::string>& addresses);

  /// Zeroed memory, aligned to a page. Errors: limit.
  [[nodiscard]] Result<void*> allocate(std::size_t bytes);
  /// Errors: invalid_argument for what allocate() did not give.
  [[nodiscard]] Result<void> release(void* memory);

  /// Offset of a range that lies within one allocation of the own arena; nullopt for any other memory. A few
  /// nanoseconds for other memory.
  [[nodiscard]] std::optional<std::uint64_t> offset_of(const void* data, std::size_t bytes) const;
  /// The same place in a rank's arena, as this process sees it.
  [[nodiscard]] std::byte* at(std::size_t rank, std::uint64_t offset) const { return arenas_[rank].data() + offset; }

  /// Bytes of address space that each of `ranks` arenas has.
  [[nodiscard]] static std::size_t reserved_bytes(std::size_t ranks) noexcept;

 private:
  Arenas(std::size_t rank, std::vector<SharedMemory> arenas) : rank_(rank), arenas_(std::move(arenas)) {}
  [[nodiscard]] const SharedMemory& own() const { return arenas_[rank_]; }

  std::size_t rank_;
  std::vector<SharedMemory> arenas_;
  std::map<std::uint64_t, std::uint64_t> used_;  ///< offset -> bytes, in whole pages
};

}  // namespace amldist::collective
