// An array shared by a process and the children that it forks.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

namespace amldist::spank {

/// Elements in shared memory: what a child writes into one, its parent and siblings read. Make it before the fork.
/// Move-only. Before make(), and if no memory was available, there are no elements.
template <typename T>
class SharedArray {
 public:
  SharedArray() = default;
  SharedArray(SharedArray&& other) noexcept
      : first_(std::exchange(other.first_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  SharedArray& operator=(SharedArray&& other) noexcept {
    std::swap(first_, other.first_);
    std::swap(size_, other.size_);
    return *this;
  }
  SharedArray(const SharedArray&) = delete;
  SharedArray& operator=(const SharedArray&) = delete;
  ~SharedArray() {
    if (first_ != nullptr) ::munmap(first_, size_ * sizeof(T));
  }

  [[nodiscard]] static SharedArray make(std::size_t size) noexcept {
    SharedArray out;
    if (size == 0) return out;
    void* const pages = ::mmap(nullptr, size * sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return out;
    out.first_ = static_cast<T*>(pages);
    out.size_ = size;
    std::uninitialized_value_construct_n(out.first_, size);
    return out;
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  /// nullptr: there is no such element.
  [[nodiscard]] T* at(std::size_t index) const noexcept { return index < size_ ? first_ + index : nullptr; }

 private:
  T* first_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace amldist::spank
