// Memory for objects of one kind that come and go by the million, such as requests: a thread keeps the blocks that it
// frees and takes them again. malloc() keeps only seven of a size at hand, and takes 50 ns for each one more.
#pragma once

#include <cstddef>
#include <new>

namespace amldist {

/// An allocator for single objects. A thread keeps at most `most` free blocks, until it ends.
template <typename T>
class RecycledMemory {
 public:
  using value_type = T;
  static constexpr std::size_t most = 256;

  RecycledMemory() = default;
  template <typename Other>
  RecycledMemory(const RecycledMemory<Other>& /*other*/) noexcept {
  }  // NOLINT(google-explicit-constructor): an allocator

  [[nodiscard]] T* allocate(std::size_t count) {
    Kept& kept = of_this_thread();
    if (count != 1 || kept.first == nullptr) return static_cast<T*>(::operator new(count* bytes, align));
    Block* const block = kept.first;
    kept.first = block->next;
    --kept.blocks;
    return reinterpret_cast<T*>(block);
  }
  void deallocate(T* memory, std::size_t count) noexcept {
    Kept& kept = of_this_thread();
    if (count != 1 || kept.blocks == most) return ::operator delete(memory, align);
    if (kept.blocks == 0) free_at_the_end();
    if (kept.has_ended) return ::operator delete(memory, align);
    kept.first = new (memory) Block{kept.first};
    ++kept.blocks;
  }

  friend bool operator==(const RecycledMemory& /*one*/, const RecycledMemory& /*other*/) noexcept { return true; }

 private:
  struct Block {
    Block* next;
  };
  static constexpr std::size_t bytes = sizeof(T) > sizeof(Block) ? sizeof(T) : sizeof(Block);
  static constexpr std::align_val_t align{alignof(T) > alignof(Block) ? alignof(T) : alignof(Block)};

  struct Kept {
    Block* first;
    std::size_t blocks;
    bool has_ended;  ///< an exit handler of the program may use the library after the objects of its thread
  };
  static Kept& of_this_thread() noexcept {
    thread_local Kept kept = {nullptr, 0, false};
    return kept;
  }
  static void free_at_the_end() noexcept {
    struct Owner {
      Owner() = default;
      Owner(const Owner&) = delete;
      Owner& operator=(const Owner&) = delete;
      ~Owner() {
        Kept& kept = of_this_thread();
        kept.has_ended = true;
        for (; kept.first != nullptr; --kept.blocks) {
          Block* const next = kept.first->next;
          ::operator delete(kept.first, align);
          kept.first = next;
        }
      }
    };
    thread_local const Owner owner;
    static_cast<void>(owner);
  }
};

}  // namespace amldist
