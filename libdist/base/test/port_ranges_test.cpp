#include "base/text/port_ranges.hpp"

#include "support.hpp"

namespace amldist {
namespace {

PortRanges ports(std::string_view text) {
  const auto parsed = PortRanges::parse(text);
  EXPECT_TRUE(parsed) << text;
  return parsed ? *parsed : PortRanges{};
}

TEST(PortRanges, AreSortedAndMerged) {
  EXPECT_EQ(ports("20000-29999").to_string(), "20000-29999");
  EXPECT_EQ(ports("9148-9150,8080").to_string(), "8080,9148-9150");
  EXPECT_EQ(ports("10-20,15-30,31").to_string(), "10-31");
  EXPECT_EQ(ports("1-65535").size(), 65535U);
}

TEST(PortRanges, LoseWhatIsTaken) {
  EXPECT_EQ(ports("20000-29999").without(ports("32768-60999")).to_string(), "20000-29999");
  EXPECT_EQ(ports("30000-40000").without(ports("32768-60999")).to_string(), "30000-32767");
  EXPECT_EQ(ports("10-20").without(ports("12,14-15,20-25")).to_string(), "10-11,13,16-19");
  EXPECT_TRUE(ports("40000-41000").without(ports("32768-60999")).empty());
  EXPECT_EQ(ports("60000-65535").without(ports("65535")).to_string(), "60000-65534");
}

TEST(PortRanges, CountAcrossGaps) {
  const PortRanges set = ports("10-11,20,30-31");
  EXPECT_EQ(set.size(), 5U);
  EXPECT_EQ(set.at(0), 10);
  EXPECT_EQ(set.at(2), 20);
  EXPECT_EQ(set.at(4), 31);
  EXPECT_TRUE(set.contains(20));
  EXPECT_FALSE(set.contains(21));
}

TEST(PortRanges, RefuseWhatIsNoPort) {
  for (const char* const bad : {"", "0", "0-10", "70000", "10-9", "10-", "-10", "a", "10,,20", "10 - 20"}) {
    const auto parsed = PortRanges::parse(bad);
    ASSERT_FALSE(parsed) << bad;
    testing::expect_sentence(parsed.error().message);
  }
}

}  // namespace
}  // namespace amldist
