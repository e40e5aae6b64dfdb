// Every copy between ranks gives the same bytes, whatever the places and their distance.
#include "collective/kernels/shared_copy.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "collective/kernels/reductions.hpp"

namespace amldist::collective::shared_copy_test {
namespace {

using Copy = std::function<void(std::byte*, const std::byte*, std::size_t)>;

struct Case {
  std::string name;
  Copy copy;
};

const Case cases[] = {
    {"SharedCopy", [](auto* to, const auto* from, std::size_t bytes) { SharedCopy().copy(to, from, bytes); }},
    {"Vectors", copy_by_vectors},
    {"Streaming", copy_by_streaming},
    {"Cached", [](auto* to, const auto* from, std::size_t n) { Reductions().copy(to, from, n, Store::cached); }},
    {"WholeLines",
     [](auto* to, const auto* from, std::size_t n) { Reductions().copy(to, from, n, Store::whole_lines); }},
};

class CopyBetweenRanks : public ::testing::TestWithParam<Case> {};

TEST_P(CopyBetweenRanks, GivesTheSameBytesAndTouchesNoOthers) {
  constexpr std::size_t page = 4096;
  std::vector<std::byte> memory(8 * page);
  std::byte* const start = memory.data() + (page - reinterpret_cast<std::uintptr_t>(memory.data()) % page);
  for (std::size_t i = 0; i < 3 * page; ++i) start[i] = static_cast<std::byte>(i * 7 + i / 251);
  for (const std::size_t bytes : {0UL, 1UL, 63UL, 64UL, 65UL, page - 1, page, page + 1, 2 * page + 77}) {
    for (const std::size_t from : {0UL, 1UL, 16UL, 64UL}) {
      for (const std::size_t to : {0UL, 1UL, 8UL, 16UL, 17UL, 31UL, 32UL, 64UL, 80UL}) {
        std::byte* const target = start + 3 * page + 64;
        std::fill(target - 1, start + 6 * page, std::byte{0xee});
        GetParam().copy(target + to, start + from, bytes);
        ASSERT_TRUE(std::equal(target + to, target + to + bytes, start + from)) << bytes << " " << from << " " << to;
        ASSERT_EQ(target[to + bytes], std::byte{0xee});
        ASSERT_EQ(*(target + to - 1), std::byte{0xee});
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CopyBetweenRanks, ::testing::ValuesIn(cases),
                         [](const auto& each) { return each.param.name; });

TEST(SlowCopy, IsALongOneToAPlaceALittleAheadOfTheSourceInAPage) {
  const auto* const source = reinterpret_cast<const std::byte*>(0x10000);
  const auto is_slow = [&](std::size_t ahead, std::size_t bytes) {
    return is_slow_to_copy(reinterpret_cast<const std::byte*>(0x20000 + ahead), source, bytes);
  };
  for (const std::size_t ahead : {1UL, 16UL, 31UL, 4097UL}) EXPECT_TRUE(is_slow(ahead, 4096)) << ahead;
  for (const std::size_t ahead : {0UL, 32UL, 64UL, 4095UL, 4096UL}) EXPECT_FALSE(is_slow(ahead, 1 << 20)) << ahead;
  EXPECT_FALSE(is_slow(16, 4095));
}

}  // namespace
}  // namespace amldist::collective::shared_copy_test
