// One decision from one of a node's tasks to the others.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <new>
#include <utility>

namespace amldist::spank {

/// A word in shared memory that is set once. Made before the fork; without memory it stays open for ever.
class SharedVerdict {
 public:
  enum class Value : int { open, use_fabric, use_sockets, refused };

  SharedVerdict() = default;
  SharedVerdict(SharedVerdict&& other) noexcept : word_(std::exchange(other.word_, nullptr)) {}
  SharedVerdict& operator=(SharedVerdict&& other) noexcept {
    std::swap(word_, other.word_);
    return *this;
  }
  SharedVerdict(const SharedVerdict&) = delete;
  SharedVerdict& operator=(const SharedVerdict&) = delete;
  ~SharedVerdict() {
    if (word_ != nullptr) ::munmap(word_, sizeof *word_);
  }

  [[nodiscard]] static SharedVerdict make() noexcept {
    SharedVerdict out;
    void* const page =
        ::mmap(nullptr, sizeof(std::atomic<int>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED) out.word_ = new (page) std::atomic<int>(0);
    return out;
  }

  void set(Value value) const noexcept {
    if (word_ != nullptr) word_->store(static_cast<int>(value));
  }

  /// Waits until it is set; `open` when the time is over.
  [[nodiscard]] Value wait(std::chrono::steady_clock::duration time) const noexcept {
    constexpr timespec pause = {0, 2'000'000};
    const auto deadline = std::chrono::steady_clock::now() + time;
    while (word_ != nullptr && std::chrono::steady_clock::now() < deadline) {
      if (const int value = word_->load(); value != 0) return static_cast<Value>(value);
      static_cast<void>(::nanosleep(&pause, nullptr));
    }
    return Value::open;
  }

 private:
  std::atomic<int>* word_ = nullptr;
};

}  // namespace amldist::spank
