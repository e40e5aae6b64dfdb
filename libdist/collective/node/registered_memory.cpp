#include "collective/node/registered_memory.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <string>

#include "core/text.hpp"
#include "os/memory_map.hpp"

namespace amldist::collective {
namespace {

using text::concat;

/// Maps pages elsewhere, copies the contents of `memory` into them, and moves them to where `memory` is.
Result<void> exchange_pages(void* memory, std::size_t bytes, int flags, int file, std::uint64_t offset) {
  const auto refuse = [&] {
    return Error{Errc::limit, concat({"not enough memory or address space for ", std::to_string(bytes),
                                      " bytes: ", std::strerror(errno)})};
  };
  void* const copy = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, file, static_cast<off_t>(offset));
  if (copy == MAP_FAILED) return refuse();
  std::memcpy(copy, memory, bytes);
  // The kernel refuses before it changes anything (too many mappings, say).
  if (::mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, memory) != MAP_FAILED) return {};
  Error error = refuse();
  static_cast<void>(::munmap(copy, bytes));
  return error;
}

}  // namespace

Result<RegisteredMemory> RegisteredMemory::place(void* memory, std::size_t bytes, const SharedMemory& shared,
                                                 std::uint64_t offset) {
  auto placed = exchange_pages(memory, bytes, MAP_SHARED | MAP_NORESERVE, shared.file().get(), offset);
  if (!placed) return placed.error();
  return RegisteredMemory(memory, bytes, shared.inode(), offset);
}

RegisteredMemory::~RegisteredMemory() {
  try {
    static_cast<void>(restore());
  } catch (const std::bad_alloc&) {
    memory_ = nullptr;  // the program keeps the shared pages
  }
}

Result<void> RegisteredMemory::restore() {
  if (memory_ == nullptr) return {};
  const auto maps = own_memory_map();
  if (!maps) return maps.error();
  const std::string name = concat({"/memfd:", SharedMemory::name});
  const FilePages pages = {name, inode_, offset_};
  if (!is_shared_mapping(*maps, reinterpret_cast<std::uintptr_t>(memory_), bytes_, pages)) {
    memory_ = nullptr;
    return Error{Errc::invalid_argument, "the program has unmapped or remapped it since it was registered"};
  }
  if (auto done = exchange_pages(memory_, bytes_, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); !done) return done;
  memory_ = nullptr;
  return {};
}

}  // namespace amldist::collective
