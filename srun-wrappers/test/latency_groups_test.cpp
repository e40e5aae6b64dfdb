// Ranks that are near each other, on machines as they are measured.
#include "aml_dist/bench/latency_groups.hpp"

#include <gtest/gtest.h>

namespace amldist::tools {
namespace {

using Groups = std::vector<std::vector<int>>;
using Matrix = std::vector<std::vector<double>>;

/// `ranks` of which those with one quotient by `width` are near each other.
Matrix blocks(std::size_t ranks, std::size_t width, double near, double far) {
  Matrix out(ranks, std::vector<double>(ranks));
  for (std::size_t a = 0; a < ranks; ++a) {
    for (std::size_t b = 0; b < ranks; ++b) {
      const double noise = 1 + 0.01 * static_cast<double>((a + b) % 10);
      if (a != b) out[a][b] = noise * (a / width == b / width ? near : far);
    }
  }
  return out;
}

TEST(LatencyGroups, CoreComplexesAreGroups) {
  EXPECT_EQ(groups_by_latency(blocks(6, 2, 60, 150)), (Groups{{0, 1}, {2, 3}, {4, 5}}));
}

TEST(LatencyGroups, RanksThatAreDealtOutCyclicallyAreFound) {
  Matrix cyclic(4, std::vector<double>(4));
  for (std::size_t a = 0; a < 4; ++a) {
    for (std::size_t b = 0; b < 4; ++b) cyclic[a][b] = a == b ? 0 : a % 2 == b % 2 ? 70 : 200;
  }
  EXPECT_EQ(groups_by_latency(cyclic), (Groups{{0, 2}, {1, 3}}));
}

TEST(LatencyGroups, TheLargestStepPartsNearFromFar) {  // complexes of 2, sockets of 4: the sockets are farther apart
  Matrix both = blocks(8, 2, 60, 100);
  for (std::size_t a = 0; a < 8; ++a) {
    for (std::size_t b = 0; b < 8; ++b) {
      if (a / 4 != b / 4) both[a][b] = 400;
    }
  }
  EXPECT_EQ(groups_by_latency(both), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}}));
}

TEST(LatencyGroups, WhatIsAlikeIsOneGroup) {
  EXPECT_EQ(groups_by_latency(blocks(4, 4, 60, 60)), (Groups{{0, 1, 2, 3}}));
  EXPECT_EQ(groups_by_latency(blocks(4, 2, 60, 75)), (Groups{{0, 1, 2, 3}}));
}

TEST(LatencyGroups, AFewRanks) {
  EXPECT_EQ(groups_by_latency({}), Groups{});
  EXPECT_EQ(groups_by_latency({{0}}), (Groups{{0}}));
  EXPECT_EQ(groups_by_latency({{0, 3000}, {3000, 0}}), (Groups{{0, 1}}));
}

}  // namespace
}  // namespace amldist::tools
