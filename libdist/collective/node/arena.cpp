#include "collective/node/arena.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

#include "core/text.hpp"

namespace amldist::collective {
namespace {

// Large enough for huge pages, if the system uses them for shared memory.
constexpr std::uint64_t large_page = 2UL << 20;
constexpr std::uint64_t page = 4096;

std::uint64_t rounded(std::uint64_t bytes, std::uint64_t unit) noexcept { return (bytes + unit - 1) / unit * unit; }

std::uint64_t physical_memory() noexcept {
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  return pages > 0 ? static_cast<std::uint64_t>(pages) * page : 1UL << 34;
}

}  // namespace

std::size_t Arenas::reserved_bytes(std::size_t ranks) noexcept {
  // One rank may use all memory, and needs room for gaps. Many ranks share it: each may use several times its part.
  constexpr std::uint64_t parts = 16;
  return std::bit_floor(std::min(2 * physical_memory(), std::max(parts * physical_memory() / ranks, large_page)));
}

Result<Arenas> Arenas::create(std::size_t rank, std::size_t ranks) {
  auto own = SharedMemory::create(reserved_bytes(ranks));
  if (!own) return own.error();
  std::vector<SharedMemory> arenas(ranks);
  arenas[rank] = std::move(*own);
  return Arenas(rank, std::move(arenas));
}

Result<void> Arenas::open(std::size_t rank, const std::string& address) {
  auto opened = SharedMemory::open(address, reserved_bytes(arenas_.size()));
  if (!opened) return opened.error();
  arenas_[rank] = std::move(*opened);
  arenas_[rank].close_file();
  return {};
}

Result<void*> Arenas::allocate(std::size_t bytes) {
  if (bytes > own().size() / 2 || bytes > physical_memory()) {
    return Error{Errc::limit, text::concat({"amldist_alloc: ", std::to_string(bytes),
                                            " bytes are more than this machine "
                                            "has"})};
  }
  const std::uint64_t length = rounded(std::max<std::uint64_t>(bytes, 1), page);
  const std::uint64_t alignment = length >= large_page ? large_page : page;
  std::uint64_t at = 0;
  for (const auto& [offset, taken] : used_) {  // the first gap that is large enough
    if (offset >= at && offset - at >= length) break;
    at = rounded(offset + taken, alignment);
  }
  if (at + length > own().size()) {
    return Error{Errc::limit,
                 text::concat({"amldist_alloc: not enough free memory for ", std::to_string(bytes), " bytes"})};
  }
  used_.emplace(at, length);
  return own().data() + at;
}

Result<void> Arenas::release(void* memory) {
  const auto at = static_cast<std::uint64_t>(static_cast<std::byte*>(memory) - own().data());
  const auto found = used_.find(at);
  if (found == used_.end()) {
    return Error{Errc::invalid_argument,
                 "amldist_free: the memory was not allocated by amldist_alloc() on this communicator"};
  }
  // Returns the pages to the system, for every process that has them mapped. The next allocation finds zeros.
  static_cast<void>(::madvise(own().data() + at, found->second, MADV_REMOVE));
  used_.erase(found);
  return {};
}

std::optional<std::uint64_t> Arenas::offset_of(const void* data, std::size_t bytes) const {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const auto base = reinterpret_cast<std::uintptr_t>(own().data());
  if (address < base || address - base >= own().size()) return std::nullopt;
  const std::uint64_t offset = address - base;
  auto next = used_.upper_bound(offset);
  if (next == used_.begin()) return std::nullopt;
  --next;
  const std::uint64_t left = next->second - std::min(next->second, offset - next->first);
  return bytes <= left && left != 0 ? std::optional(offset) : std::nullopt;
}

}  // namespace amldist::collective
