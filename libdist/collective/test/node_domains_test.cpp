#include "collective/node/node_domains.hpp"

#include <gtest/gtest.h>

namespace amldist {
namespace {

using Place = NodeDomains::Place;

NodeDomains parse(std::string_view text) {
  auto parsed = NodeDomains::parse(text);
  EXPECT_TRUE(parsed) << parsed.error().message;
  return parsed ? *parsed : NodeDomains();
}

TEST(NodeDomains, AreTheKernelsUnlessTold) {
  EXPECT_TRUE(NodeDomains().is_automatic());
  EXPECT_EQ(parse("auto"), NodeDomains());
  EXPECT_TRUE(parse("off").is_off());
  EXPECT_FALSE(parse("off").is_automatic());
  EXPECT_FALSE(parse("0-3,4-7").is_automatic());
}

TEST(NodeDomains, AreListsOfRanks) {
  const NodeDomains two = parse("0-3,4-7");
  EXPECT_EQ(two.of(0), (Place{0, 0}));
  EXPECT_EQ(two.of(3), (Place{0, 0}));
  EXPECT_EQ(two.of(4), (Place{1, 0}));
  EXPECT_EQ(two.of(8), std::nullopt);
  const NodeDomains four = parse("0+2,1+3/4-4,5");
  EXPECT_EQ(four.of(2), (Place{0, 0}));
  EXPECT_EQ(four.of(3), (Place{1, 0}));
  EXPECT_EQ(four.of(4), (Place{2, 1}));
  EXPECT_EQ(four.of(5), (Place{3, 1}));
}

TEST(NodeDomains, RefuseOtherText) {
  for (const char* const wrong :
       {"", "on", "0-3,", "0-3,/4", "3-1", "0,-1", "4096", "0-99999999999", "0, 1", "0++1", "0x1"}) {
    const auto parsed = NodeDomains::parse(wrong);
    ASSERT_FALSE(parsed) << wrong;
    EXPECT_EQ(parsed.error().code, Errc::invalid_argument);
    EXPECT_NE(parsed.error().message.find("is not RANK or LO-HI with 0 <= LO <= HI <= 4095"), std::string::npos);
  }
  const auto twice = NodeDomains::parse("0-3,3-5");
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().message, "rank 3 is in two domains");
}

}  // namespace
}  // namespace amldist
