// What nodes tell srun about the waits of their ranks.
#include "step/messages/wait_shares.hpp"

#include "support.hpp"

namespace amldist::step {
namespace {

using trace::OwnWaits;
using trace::WaitedFor;

constexpr std::uint64_t group = 0x9ae16a3b2f90404f;

TEST(WaitShares, AreReadAsTheyWereWritten) {
  std::vector<std::string> texts;
  add_wait_share("node2", OwnWaits{2, 0, {}, 40, 0.612, 0.7, {{true, group, 0.5}, {false, 1, 0.112}, {false, 3, 1e-5}}},
                 texts);
  add_wait_share("node2", OwnWaits{3, 1, {}, 40, 0.014, 0.014, {}}, texts);
  ASSERT_EQ(texts.size(), 1U);
  EXPECT_EQ(texts[0], "node2 2:0:40:612:700:g9ae16a3b2f90404f=500+r1=112,3:1:40:14:14:");
  const auto read = parse_wait_shares(texts[0], 4);
  ASSERT_TRUE(read);
  ASSERT_EQ(read->size(), 2U);
  const OwnWaits& first = read->front();
  EXPECT_EQ(first.host, "node2");
  EXPECT_EQ(first.calls, 40U);
  EXPECT_DOUBLE_EQ(first.part, 0.612);
  EXPECT_DOUBLE_EQ(first.at_most, 0.7);
  EXPECT_EQ(first.awaited, (std::vector<WaitedFor>{{true, group, 0.5}, {false, 1, 0.112}}));
  EXPECT_EQ(read->back().rank, 3U);
  EXPECT_TRUE(read->back().awaited.empty());
}

TEST(WaitShares, OfManyRanksTakeSeveralTexts) {
  std::vector<std::string> texts;
  OwnWaits rank{0, 0, {}, 1ULL << 40, 1, 1, std::vector<WaitedFor>(40, WaitedFor{true, ~std::uint64_t{0}, 1})};
  for (rank.rank = 4'000'000'000; rank.rank < 4'000'000'010; ++rank.rank) add_wait_share("node2", rank, texts);
  EXPECT_EQ(texts.size(), 5U);
  std::size_t read = 0;
  for (const std::string& each : texts) {
    EXPECT_LE(each.size(), longest_wait_shares);
    const auto ranks = parse_wait_shares(each, 4'100'000'000);
    ASSERT_TRUE(ranks) << each;
    read += ranks->size();
  }
  EXPECT_EQ(read, 10U);
}

TEST(WaitShares, ThatMakeNoSenseAreRefused) {
  for (const char* const wrong : {"",
                                  "node1",
                                  "node1 ",
                                  "node1 0:0:600",
                                  "node1 0:0:600:612:612",
                                  "node1 0:0:600:1001:1001:",
                                  "node1 0:0:600:612:611:",
                                  "node1 2:0:600:1:1:",
                                  "node1 -1:0:600:1:1:",
                                  "no\tde 0:0:600:1:1:",
                                  "node1 0:0:600:1:1:1:",
                                  "node1 0:0:99999999999999:1:1:",
                                  "node1 0:0:600:1:1:r2=1",
                                  "node1 0:0:600:1:1:r1",
                                  "node1 0:0:600:1:1:r1=1001",
                                  "node1 0:0:600:1:1:x1=1",
                                  "node1 0:0:600:1:1:g=1",
                                  "node1 0:0:600:1:1:g11112222333344445=1",
                                  "node1 0:0:600:1:1:g-1=1",
                                  "node1 0:0:600:1:1:r1=1+",
                                  "node1 0:0:600:1:1:=",
                                  "node1 0:0:600:1:1:,"})
    EXPECT_FALSE(parse_wait_shares(wrong, 2)) << wrong;
  EXPECT_FALSE(parse_wait_shares("node1 0:0:600:1:1:", 0));
  std::string many = "node1 0:0:600:1:1:r1=1";
  for (std::size_t i = 1; i < OwnWaits::most_awaited; ++i) many += "+r1=1";
  EXPECT_TRUE(parse_wait_shares(many, 2));
  EXPECT_FALSE(parse_wait_shares(many + "+r1=1", 2));
}

}  // namespace
}  // namespace amldist::step
