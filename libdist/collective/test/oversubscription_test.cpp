#include "collective/node/channel/oversubscription.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace amldist::collective {
namespace {

/// As own_place() tells it.
std::string place(const std::string& machine, const std::vector<unsigned>& processors) {
  std::string out = machine + '\n';
  for (const unsigned processor : processors) {
    const std::size_t byte = machine.size() + 1 + processor / 8;
    if (out.size() <= byte) out.resize(byte + 1);
    out[byte] = static_cast<char>(out[byte] | 1 << processor % 8);
  }
  return out;
}

/// By each rank's place.
calls::Pieces pieces(const std::vector<std::string>& places) {
  calls::Pieces out;
  for (std::uint32_t rank = 0; rank < places.size(); ++rank) out.add({rank, 1, places[rank]});
  return out;
}

TEST(Oversubscription, EachRankHasAProcessor) {
  EXPECT_FALSE(are_oversubscribed(pieces({place("m", {0}), place("m", {1})}), 0));
  EXPECT_FALSE(are_oversubscribed(pieces({place("m", {0, 1}), place("m", {0, 1})}), 1));
  EXPECT_FALSE(are_oversubscribed(pieces({place("m", {1, 3}), place("m", {1, 3})}), 0)) << "the bits of a line end";
  EXPECT_TRUE(are_oversubscribed(pieces({place("m", {0}), place("m", {0})}), 0));
  EXPECT_TRUE(are_oversubscribed(pieces({place("m", {0, 1}), place("m", {0, 1}), place("m", {1})}), 2));
}

TEST(Oversubscription, RanksOfOtherMachinesDoNotCount) {
  EXPECT_FALSE(are_oversubscribed(pieces({place("m", {0}), place("n", {0}), place("o", {0})}), 0));
  EXPECT_FALSE(are_oversubscribed(pieces({place("m", {0}), place("m1", {0})}), 0));
  EXPECT_TRUE(are_oversubscribed(pieces({place("m1", {0}), place("m", {0}), place("m1", {0})}), 0));
}

TEST(Oversubscription, AMachineMayHaveMoreProcessorsThanASetOfLibcHasRoomFor) {
  EXPECT_FALSE(are_oversubscribed(pieces({place("m", {7}), place("m", {1024}), place("m", {8191})}), 1));
  EXPECT_TRUE(are_oversubscribed(pieces({place("m", {1024}), place("m", {1024})}), 1));
}

TEST(Oversubscription, ThisProcessHasAProcessor) { EXPECT_FALSE(are_oversubscribed(pieces({own_place()}), 0)); }

}  // namespace
}  // namespace amldist::collective
