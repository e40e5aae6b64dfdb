#include "collective/node/memory/registered_memory.hpp"

#include <pthread.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/text.hpp"

namespace amldist::collective {
namespace {

using text::concat;

/// Other pages with the contents of `memory`. Errors: limit.
Result<void*> copy_of(const void* memory, std::size_t bytes, int flags, int file, std::uint64_t offset) {
  void* const copy = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, file, static_cast<off_t>(offset));
  if (copy == MAP_FAILED) {
    return Error{Errc::limit, concat({"not enough memory or address space for ", std::to_string(bytes),
                                      " bytes: ", std::strerror(errno)})};
  }
  std::memcpy(copy, memory, bytes);
  return copy;
}

Result<void*> private_copy_of(const void* memory, std::size_t bytes) {
  return copy_of(memory, bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/// Moves pages to the place of `memory`. If the kernel refuses, it does so before it changes anything (for example with
/// too many mappings), and then they are unmapped. Errors: limit.
Result<void> take_place(void* copy, std::size_t bytes, void* memory) {
  if (::mremap(copy, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, memory) != MAP_FAILED) return {};
  Error error{Errc::limit, concat({"the pages cannot be exchanged: ", std::strerror(errno)})};
  static_cast<void>(::munmap(copy, bytes));
  return error;
}

constexpr std::string_view mapping_name = "/memfd:amldist";
static_assert(mapping_name.ends_with(SharedMemory::name));

/// Memory that shows the pages of a file.
struct RegisteredRange {
  void* memory;
  std::size_t bytes;
  FilePages pages;
  void* copy = nullptr;  ///< during a fork(); nullptr: leave it alone; MAP_FAILED: no memory for a copy
};

bool is_in_place(std::string_view maps, const RegisteredRange& range) {
  return is_shared_mapping(maps, reinterpret_cast<std::uintptr_t>(range.memory), range.bytes, range.pages);
}

/// All registered memory of this process, for fork(), which waits while the lock is held.
class RegisteredRanges {
 public:
  /// Never destroyed: a communicator may be finalized by an exit handler of the program, after those of this library.
  static RegisteredRanges& all() {
    static auto* const ranges = new RegisteredRanges;
    return *ranges;
  }

  std::mutex mutex;
  std::vector<RegisteredRange> list;

 private:
  RegisteredRanges() {
    static_cast<void>(
        ::pthread_atfork([] { all().before_fork(); }, [] { all().in_parent(); }, [] { all().in_child(); }));
  }

  /// The copies belong to the child: what it writes, if only by free(), must not change its parent's data.
  void before_fork() noexcept {
    mutex.lock();
    for (RegisteredRange& range : list) range.copy = nullptr;
    if (list.empty()) return;
    try {
      const auto maps = own_memory_map();
      for (RegisteredRange& range : list) {
        if (!maps || !is_in_place(*maps, range)) continue;
        const auto copy = private_copy_of(range.memory, range.bytes);
        range.copy = copy ? *copy : MAP_FAILED;
      }
    } catch (const std::bad_alloc&) {
      return;  // the rest stays shared
    }
  }

  void in_parent() noexcept {
    for (const RegisteredRange& range : list) {
      if (range.copy != nullptr && range.copy != MAP_FAILED) static_cast<void>(::munmap(range.copy, range.bytes));
    }
    mutex.unlock();
  }

  /// Without memory for a copy the child can read its parent's data, and is stopped if it writes.
  void in_child() noexcept {
    constexpr int moved = MREMAP_MAYMOVE | MREMAP_FIXED;
    for (const RegisteredRange& range : list) {
      if (range.copy == nullptr) continue;
      const bool has_copy = range.copy != MAP_FAILED;
      if (has_copy && ::mremap(range.copy, range.bytes, range.bytes, moved, range.memory) != MAP_FAILED) continue;
      static_cast<void>(::mprotect(range.memory, range.bytes, PROT_READ));
    }
    list.clear();
    mutex.unlock();
  }
};

/// Whether two addresses show one byte, which is `ours` to write: a byte elsewhere would not follow two changes.
bool is_same_byte(const std::byte* theirs, std::byte* ours) noexcept {
  const volatile std::byte* const seen = theirs;
  volatile std::byte* const changed = ours;
  const std::byte before = *changed;
  const auto follows = [&](std::byte value) {
    *changed = value;
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return *seen == value;
  };
  const bool is_same = follows(~before) && follows(before ^ std::byte{1});
  *changed = before;
  return is_same;
}

}  // namespace

Result<RegisteredMemory> RegisteredMemory::place(void* memory, std::size_t bytes, const SharedMemory& shared,
                                                 std::uint64_t offset) {
  RegisteredRanges& ranges = RegisteredRanges::all();
  const std::lock_guard lock(ranges.mutex);
  ranges.list.reserve(ranges.list.size() + 1);
  const auto copy = copy_of(memory, bytes, MAP_SHARED | MAP_NORESERVE, shared.file().get(), offset);
  if (!copy) return copy.error();
  if (auto status = take_place(*copy, bytes, memory); !status) return status.error();
  ranges.list.push_back({memory, bytes, {mapping_name, shared.inode(), offset}});
  return RegisteredMemory(memory, bytes, shared.inode(), offset);
}

bool RegisteredMemory::has(const std::byte* part, std::size_t bytes, Access access, const MappingQuery& query,
                           const SharedMemory& shared) const {
  const auto begin = static_cast<std::uint64_t>(part - static_cast<const std::byte*>(memory_));
  const auto is_it =
      query.is_shared(reinterpret_cast<std::uintptr_t>(part), bytes, {mapping_name, inode_, offset_ + begin});
  if (is_it) return *is_it;
  std::byte* const ours = shared.data() + offset_ + begin;
  return access == Access::written && bytes > 0 && is_same_byte(part, ours) &&
         is_same_byte(part + bytes - 1, ours + bytes - 1);
}

Result<bool> RegisteredMemory::is_in_place() const {
  const auto maps = own_memory_map();
  if (!maps) return maps.error();
  return collective::is_in_place(*maps, {memory_, bytes_, {mapping_name, inode_, offset_}});
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
  const auto still = is_in_place();
  if (!still) return still.error();
  RegisteredRanges& ranges = RegisteredRanges::all();
  const std::lock_guard lock(ranges.mutex);
  if (*still) {
    const auto copy = private_copy_of(memory_, bytes_);
    if (!copy) return copy.error();
    if (auto status = take_place(*copy, bytes_, memory_); !status) return status;
  }
  std::erase_if(ranges.list, [&](const RegisteredRange& range) {
    return range.memory == memory_ && range.pages.inode == inode_ && range.pages.offset == offset_;
  });
  memory_ = nullptr;
  if (*still) return {};
  return Error{Errc::invalid_argument, "the program has unmapped or remapped it since it was registered"};
}

}  // namespace amldist::collective
