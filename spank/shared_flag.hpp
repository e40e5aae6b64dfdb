// One bit from a forked child back to its parent.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <new>
#include <utility>

namespace amldist::spank {

/// A flag in shared memory: set() in a child is seen by its parent. Move-only; without memory it stays unset. raise()
/// and is_set() are safe in any process that inherited it.
class SharedFlag {
 public:
  SharedFlag() = default;
  SharedFlag(SharedFlag&& other) noexcept : flag_(std::exchange(other.flag_, nullptr)) {}
  SharedFlag& operator=(SharedFlag&& other) noexcept {
    std::swap(flag_, other.flag_);
    return *this;
  }
  SharedFlag(const SharedFlag&) = delete;
  SharedFlag& operator=(const SharedFlag&) = delete;
  ~SharedFlag() {
    if (flag_ != nullptr) ::munmap(flag_, sizeof *flag_);
  }

  /// A lowered flag of its own; to be made before the fork.
  [[nodiscard]] static SharedFlag make() noexcept {
    SharedFlag out;
    void* const page =
        ::mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED) out.flag_ = new (page) std::atomic<bool>(false);
    return out;
  }

  /// Sets the flag; true for whoever is the first, and for everybody without shared memory.
  bool raise() const noexcept { return flag_ == nullptr || !flag_->exchange(true); }
  [[nodiscard]] bool is_set() const noexcept { return flag_ != nullptr && flag_->load(); }

 private:
  static_assert(std::atomic<bool>::is_always_lock_free, "a lock would not be shared between processes");
  std::atomic<bool>* flag_ = nullptr;
};

}  // namespace amldist::spank
