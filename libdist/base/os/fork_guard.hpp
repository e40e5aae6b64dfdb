// Tells a process from a copy made by fork(), which has none of the parent's threads and shares its shared memory.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>

namespace amldist {

/// A page that the kernel empties in a child; checking costs one load.
class ForkGuard {
 public:
  ForkGuard() noexcept {
    void* const page = ::mmap(nullptr, page_bytes(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return;
    mark_ = static_cast<char*>(page);
    *mark_ = 1;
    // Kernels before 4.14 lack MADV_WIPEONFORK; copies are not detected there.
    static_cast<void>(::madvise(page, page_bytes(), MADV_WIPEONFORK));
  }
  ~ForkGuard() {
    if (mark_ != nullptr) ::munmap(mark_, page_bytes());
  }
  ForkGuard(const ForkGuard&) = delete;
  ForkGuard& operator=(const ForkGuard&) = delete;

  [[nodiscard]] bool is_here() const noexcept { return mark_ == nullptr || *mark_ != 0; }

 private:
  static std::size_t page_bytes() noexcept { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }
  char* mark_ = nullptr;
};

}  // namespace amldist
