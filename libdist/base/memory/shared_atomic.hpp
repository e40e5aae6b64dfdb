// One atomic value shared by a process and the children that it forks.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <new>
#include <utility>

namespace amldist {

/// An atomic value in shared memory: what a child stores, its parent and siblings load. Make it before the fork.
/// Move-only. Before make(), and if no memory was available, stores are lost and every load returns T{}.
template <typename T>
class SharedAtomic {
 public:
  SharedAtomic() = default;
  SharedAtomic(SharedAtomic&& other) noexcept : value_(std::exchange(other.value_, nullptr)) {}
  SharedAtomic& operator=(SharedAtomic&& other) noexcept {
    std::swap(value_, other.value_);
    return *this;
  }
  SharedAtomic(const SharedAtomic&) = delete;
  SharedAtomic& operator=(const SharedAtomic&) = delete;
  ~SharedAtomic() {
    if (value_ != nullptr) ::munmap(value_, sizeof *value_);
  }

  [[nodiscard]] static SharedAtomic make() noexcept {
    SharedAtomic out;
    void* const page =
        ::mmap(nullptr, sizeof(std::atomic<T>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED) out.value_ = new (page) std::atomic<T>(T{});
    return out;
  }

  [[nodiscard]] T load() const noexcept { return value_ != nullptr ? value_->load() : T{}; }
  void store(T value) const noexcept {
    if (value_ != nullptr) value_->store(value);
  }
  /// Stores a value and returns the previous one.
  [[nodiscard]] T exchange(T value) const noexcept { return value_ != nullptr ? value_->exchange(value) : T{}; }
  /// Stores a value if the present one is `expected`; returns whether it was. Always true without memory.
  [[nodiscard]] bool replace(T expected, T value) const noexcept {
    return value_ == nullptr || value_->compare_exchange_strong(expected, value);
  }

  /// Adds to a number and returns the previous one.
  [[nodiscard]] T add(T number) const noexcept { return value_ != nullptr ? value_->fetch_add(number) : T{}; }

 private:
  static_assert(std::atomic<T>::is_always_lock_free, "a lock would not be shared between processes");
  std::atomic<T>* value_ = nullptr;
};

}  // namespace amldist
