#include "base/memory/recycled_memory.hpp"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace amldist {
namespace {

struct Large {
  std::array<char, 500> data = {};
};

TEST(RecycledMemory, ABlockIsTakenAgain) {
  RecycledMemory<Large> memory;
  Large* const first = memory.allocate(1);
  memory.deallocate(first, 1);
  Large* const second = memory.allocate(1);
  EXPECT_EQ(second, first);
  memory.deallocate(second, 1);
}

TEST(RecycledMemory, BlocksInUseDiffer) {
  constexpr std::size_t many = 3 * RecycledMemory<Large>::most;
  for (int round = 0; round < 3; ++round) {
    std::vector<std::shared_ptr<Large>> all;
    std::set<Large*> places;
    for (std::size_t i = 0; i < many; ++i) {
      all.push_back(std::allocate_shared<Large>(RecycledMemory<Large>()));
      places.insert(all.back().get());
    }
    EXPECT_EQ(places.size(), many);
  }
}

/// What one thread allocates another may free; what a thread keeps is freed when it ends, which the address sanitizer
/// checks.
TEST(RecycledMemory, MayBeFreedByAnotherThread) {
  auto object = std::allocate_shared<Large>(RecycledMemory<Large>());
  std::thread other([taken = std::move(object)]() mutable {
    taken.reset();
    for (int i = 0; i < 10; ++i) {
      auto one = std::allocate_shared<Large>(RecycledMemory<Large>());
      auto two = std::allocate_shared<Large>(RecycledMemory<Large>());
    }
  });
  other.join();
}

}  // namespace
}  // namespace amldist
