#include "collective/node/memory/arena.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

#include "base/memory/memory_map.hpp"
#include "base/text/text.hpp"

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
  // One rank may use all memory, and needs room for gaps. Many ranks share it: each may use several times its part. A
  // process has 128 TiB of addresses for dozens of communicators, and for its other reservations.
  constexpr std::uint64_t parts = 4;
  constexpr std::uint64_t most_in_total = 2UL << 40;
  const std::uint64_t share = std::min(parts * physical_memory(), most_in_total) / ranks;
  return std::bit_floor(std::min(2 * physical_memory(), std::max(share, large_page)));
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

/// A free block. `asker` is the function that errors name.
Result<std::uint64_t> Arenas::take(std::size_t bytes, std::string_view asker) {
  if (bytes > own().size() / 2 || bytes > physical_memory()) {
    return Error{Errc::limit,
                 text::concat({asker, ": ", std::to_string(bytes), " bytes are more than this machine has"})};
  }
  const std::uint64_t length = rounded(std::max<std::uint64_t>(bytes, 1), page);
  const std::uint64_t alignment = length >= large_page ? large_page : page;
  const std::lock_guard lock(tables_->mutex);
  std::uint64_t at = 0;
  for (const auto& [offset, taken] : tables_->used) {  // the first gap that is large enough
    if (offset >= at && offset - at >= length) break;
    at = rounded(offset + taken, alignment);
  }
  if (at + length > own().size()) {
    return Error{Errc::limit, text::concat({asker, ": not enough free memory for ", std::to_string(bytes), " bytes"})};
  }
  tables_->used.emplace(at, length);
  return at;
}

/// Returns the pages to the system, for every process that has them mapped. The next allocation finds zeros.
void Arenas::give_back(std::map<std::uint64_t, std::uint64_t>::iterator block) {
  static_cast<void>(::madvise(own().data() + block->first, block->second, MADV_REMOVE));
  tables_->used.erase(block);
}

Result<void*> Arenas::allocate(std::size_t bytes) {
  const auto at = take(bytes, "amldist_alloc");
  if (!at) return at.error();
  return own().data() + *at;
}

Result<void> Arenas::release(void* memory) {
  const auto at = static_cast<std::uint64_t>(static_cast<std::byte*>(memory) - own().data());
  const std::lock_guard lock(tables_->mutex);
  const auto found = tables_->used.find(at);
  if (found == tables_->used.end()) {
    return Error{Errc::invalid_argument,
                 "amldist_free: the memory was not allocated by amldist_alloc() on this communicator"};
  }
  give_back(found);
  return {};
}

Result<void> Arenas::check_whole_pages(const void* memory, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  const bool is_whole = address % page == 0 && bytes % page == 0;
  if (memory != nullptr && bytes > 0 && is_whole && bytes <= UINTPTR_MAX - address) return {};
  return Error{
      Errc::invalid_argument,
      text::concat({"amldist_register: ", std::to_string(bytes), " bytes at an address that is ",
                    memory == nullptr ? "NULL" : std::to_string(address % page) + " bytes after a page's start",
                    " are not whole pages of ", std::to_string(page), " bytes: allocate with aligned_alloc()"})};
}

Result<void> Arenas::register_memory(void* memory, std::size_t bytes) {
  if (auto status = check_whole_pages(memory, bytes); !status) return status;
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  const auto refuse = [](Errc code, std::string_view why) {
    return Error{code, text::concat({"amldist_register: the buffer cannot be registered: ", why})};
  };
  if (auto status = forget_what_was_remapped(address, bytes); !status)
    return refuse(status.error().code, status.error().message);
  const auto maps = own_memory_map_with_flags();
  if (!maps) return refuse(Errc::unavailable, maps.error().message);
  if (auto status = check_private_memory(*maps, address, bytes); !status)
    return refuse(status.error().code, status.error().message);
  const auto at = take(bytes, "amldist_register");
  if (!at) return at.error();
  auto placed = RegisteredMemory::place(memory, bytes, own(), *at);
  const std::lock_guard lock(tables_->mutex);
  if (!placed) {
    give_back(tables_->used.find(*at));
    return refuse(placed.error().code, placed.error().message);
  }
  tables_->registered.emplace(address, std::move(*placed));
  tables_->has_registered = true;
  return {};
}

/// Drops registrations in a range whose memory the program has freed or remapped. Errors: invalid_argument if one is
/// still there; unavailable.
Result<void> Arenas::forget_what_was_remapped(std::uintptr_t address, std::size_t bytes) {
  auto next = tables_->registered.lower_bound(address);
  if (next != tables_->registered.begin() && address - std::prev(next)->first < std::prev(next)->second.bytes()) --next;
  while (next != tables_->registered.end() && (next->first <= address || next->first - address < bytes)) {
    const auto is_there = next->second.is_in_place();
    if (!is_there) return is_there.error();
    if (*is_there) return Error{Errc::invalid_argument, "it, or a part of it, is registered already"};
    const std::lock_guard lock(tables_->mutex);
    next = tables_->registered.erase(next);  // its part of the arena stays taken: a remapped buffer may show it
  }
  return {};
}

Result<void> Arenas::deregister_memory(void* memory) {
  const auto found = tables_->registered.find(reinterpret_cast<std::uintptr_t>(memory));
  if (found == tables_->registered.end()) {
    return Error{Errc::invalid_argument, "amldist_deregister: no memory is registered at this address"};
  }
  auto restored = found->second.restore();
  const bool is_lost = !restored && restored.error().code == Errc::invalid_argument;
  if (!restored && !is_lost)
    return Error{restored.error().code, text::concat({"amldist_deregister: ", restored.error().message})};
  const std::lock_guard lock(tables_->mutex);
  // If memory was remapped, its pages stay until the end.
  if (!is_lost) give_back(tables_->used.find(found->second.offset()));
  tables_->registered.erase(found);
  tables_->has_registered = !tables_->registered.empty();
  if (is_lost) return Error{Errc::invalid_argument, text::concat({"amldist_deregister: ", restored.error().message})};
  return {};
}

std::optional<std::uint64_t> Arenas::offset_of(const void* data, std::size_t bytes, Access access) const {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const auto base = reinterpret_cast<std::uintptr_t>(own().data());
  if (address < base || address - base >= own().size()) {
    if (!tables_->has_registered) return std::nullopt;
    return offset_of_registered(static_cast<const std::byte*>(data), bytes, access);
  }
  const std::uint64_t offset = address - base;
  const std::lock_guard lock(tables_->mutex);
  auto next = tables_->used.upper_bound(offset);
  if (next == tables_->used.begin()) return std::nullopt;
  --next;
  const std::uint64_t left = next->second - std::min(next->second, offset - next->first);
  return bytes <= left && left != 0 ? std::optional(offset) : std::nullopt;
}

std::optional<std::uint64_t> Arenas::offset_of_registered(const std::byte* data, std::size_t bytes,
                                                          Access access) const {
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  const std::lock_guard lock(tables_->mutex);
  auto next = tables_->registered.upper_bound(address);
  if (next == tables_->registered.begin()) return std::nullopt;
  const auto& [begin, memory] = *--next;
  const std::size_t behind = address - begin;
  const bool is_within = behind < memory.bytes() && bytes <= memory.bytes() - behind;
  if (!is_within || !memory.has(data, bytes, access, query_, own())) return std::nullopt;
  return memory.offset() + behind;
}

}  // namespace amldist::collective
