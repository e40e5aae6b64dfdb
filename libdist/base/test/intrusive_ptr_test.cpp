#include "base/memory/intrusive_ptr.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <utility>
#include <vector>

namespace amldist::intrusive_ptr_test {
namespace {

struct Counted final : ReferenceCounted {
  explicit Counted(int& counter) : alive(counter) { ++alive; }
  ~Counted() { --alive; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;
  int& alive;
};
using Ptr = IntrusivePtr<Counted>;

TEST(IntrusivePtr, TheLastOwnerDeletesTheObject) {
  int alive = 0;
  Ptr first(new Counted(alive));
  Ptr second = first;
  const Ptr third = std::move(first);
  EXPECT_FALSE(first);  // NOLINT(bugprone-use-after-move): it is empty then
  EXPECT_EQ(third.get(), second.get());
  second.reset();
  EXPECT_EQ(alive, 1);
  second = third;
  second = Ptr(new Counted(alive));
  EXPECT_EQ(alive, 2);
  second = Ptr();
  EXPECT_EQ(alive, 1);
}

TEST(IntrusivePtr, AnOwnerMayContinueWithoutAPointer) {
  int alive = 0;
  Counted* const object = Ptr(new Counted(alive)).release();
  EXPECT_EQ(alive, 1);
  {
    const auto another = Ptr::sharing(*object);
    EXPECT_EQ(another->alive, 1);
  }
  EXPECT_EQ(alive, 1);
  Ptr(object).reset();
  EXPECT_EQ(alive, 0);
}

TEST(IntrusivePtr, ThreadsMayEndTheirOwnersAtOnce) {
  for (int i = 0; i < 200; ++i) {
    int alive = 0;
    Ptr own(new Counted(alive));
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t) threads.emplace_back([other = own]() mutable { Ptr(other).reset(); });
    own.reset();
    for (std::thread& each : threads) each.join();
    threads.clear();
    EXPECT_EQ(alive, 0);
  }
}

}  // namespace
}  // namespace amldist::intrusive_ptr_test
