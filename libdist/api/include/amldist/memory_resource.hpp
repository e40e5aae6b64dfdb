// Library memory for the containers of a C++ program: their elements take part in collectives without being copied.
//
//   amldist::MemoryResource memory(world);
//   std::pmr::unsynchronized_pool_resource pool(&memory);      // where there are many small ones
//   std::pmr::vector<float> gradients(count, &pool);
//
// Needs C++20 and exceptions, because std::pmr reports with them that memory is exhausted.
#pragma once

#include <cstddef>
#include <memory_resource>
#include <new>

#include "amldist/amldist.hpp"

namespace amldist {

/// amldist_alloc() as a memory resource. It must outlive its containers, and be destroyed before its communicator. Each
/// allocation takes whole pages, so use a pool in front of it for many small ones. Not thread-safe, like the
/// communicator's calls. Throws std::bad_alloc; amldist_last_error() has the reason.
class MemoryResource final : public std::pmr::memory_resource {
 public:
  explicit MemoryResource(const Communicator& comm) noexcept : comm_(comm.get()) {}

 private:
  /// The alignment of amldist_alloc().
  static constexpr std::size_t page = 4096;

  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    void* memory = nullptr;
    if (alignment > page || amldist_alloc(comm_, bytes, &memory) != AMLDIST_OK) throw std::bad_alloc();
    return memory;
  }
  void do_deallocate(void* memory, std::size_t /*bytes*/, std::size_t /*alignment*/) override {
    static_cast<void>(amldist_free(comm_, memory));
  }
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    const auto* const one = dynamic_cast<const MemoryResource*>(&other);
    return one != nullptr && one->comm_ == comm_;
  }

  amldist_comm* comm_;
};

}  // namespace amldist
