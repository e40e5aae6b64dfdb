#include "collective/buckets/bucket_plan.hpp"

#include <algorithm>
#include <random>

#include "support.hpp"

namespace amldist::collective {
namespace {

constexpr std::size_t kib = 1024;

std::vector<PlannedTensor> tensors_of(std::initializer_list<std::size_t> bytes) {
  std::vector<PlannedTensor> tensors;
  for (const std::size_t each : bytes) tensors.push_back({each, false});
  return tensors;
}

/// Tensors of each unit.
std::vector<std::vector<std::size_t>> members(const std::vector<Unit>& units) {
  std::vector<std::vector<std::size_t>> all;
  for (const Unit& unit : units) {
    std::vector<std::size_t> own;
    for (const Placement& place : unit.tensors) own.push_back(place.tensor);
    all.push_back(own);
  }
  return all;
}

using Lists = std::vector<std::vector<std::size_t>>;

TEST(BucketPlan, FillsFromTheLastTensorAndKeepsTheFirstBucketSmall) {
  const auto tensors = tensors_of({4 * kib, 4 * kib, 4 * kib, 4 * kib, 4 * kib});
  EXPECT_EQ(members(plan_buckets(tensors, {4 * kib, 8 * kib})), (Lists{{4}, {3, 2}, {1, 0}}));
}

TEST(BucketPlan, GivesATensorThatIsTooLargeABucketOfItsOwn) {
  const auto tensors = tensors_of({kib, 100 * kib, kib});
  EXPECT_EQ(members(plan_buckets(tensors, {4 * kib, 8 * kib})), (Lists{{2}, {1}, {0}}));
}

TEST(BucketPlan, LeavesABucketOpenAroundTensorsThatStandAlone) {
  auto tensors = tensors_of({kib, 100 * kib, kib, 100 * kib, kib});
  tensors[1].alone = tensors[3].alone = true;
  const auto units = plan_buckets(tensors, {4 * kib, 8 * kib});
  EXPECT_EQ(members(units), (Lists{{3}, {1}, {4, 2, 0}}));
  EXPECT_TRUE(units[0].alone && units[1].alone && !units[2].alone);
  EXPECT_EQ(units[0].bytes, 0U);
}

TEST(BucketPlan, LaunchesTensorsThatStandAloneTogetherUpToTheLimit) {
  auto tensors = tensors_of({3 * kib, 3 * kib, 3 * kib, 3 * kib, 3 * kib});
  for (auto& tensor : tensors) tensor.alone = true;
  const auto units = plan_buckets(tensors, {4 * kib, 8 * kib});
  EXPECT_EQ(members(units), (Lists{{4}, {3, 2}, {1, 0}}));
  EXPECT_EQ(units[1].calls(), 2U);
}

TEST(BucketPlan, HasNothingToDoForNothing) { EXPECT_TRUE(plan_buckets({}, {}).empty()); }

TEST(BucketPlan, PlacesEveryTensorOnceAlignedAndApart) {
  std::mt19937 dice(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<PlannedTensor> tensors(dice() % 50);
    for (auto& tensor : tensors) tensor = {dice() % (64 * kib), dice() % 5 == 0};
    std::vector<int> seen(tensors.size());
    for (const Unit& unit : plan_buckets(tensors, {8 * kib, 128 * kib})) {
      std::size_t end = 0;
      for (const Placement& place : unit.tensors) {
        ++seen[place.tensor];
        EXPECT_EQ(place.offset % bucket_alignment, 0U);
        EXPECT_GE(place.offset, end);
        end = place.offset + (unit.alone ? 0 : tensors[place.tensor].bytes);
        EXPECT_EQ(unit.alone, tensors[place.tensor].alone);
      }
      EXPECT_LE(end, unit.bytes);
      EXPECT_TRUE(unit.bytes <= 128 * kib || unit.tensors.size() == 1);
    }
    EXPECT_TRUE(std::ranges::all_of(seen, [](int times) { return times == 1; }));
  }
}

}  // namespace
}  // namespace amldist::collective
