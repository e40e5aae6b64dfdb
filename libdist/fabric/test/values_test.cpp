// What the kernel writes for a port, and what it never writes.
#include <gtest/gtest.h>

#include "fabric/facts/port_values.hpp"

namespace amldist::fabric {
namespace {

TEST(PortValues, State) {
  EXPECT_EQ(parse_state("4: ACTIVE"), PortState::active);
  EXPECT_EQ(parse_state("2: INIT"), PortState::init);
  EXPECT_EQ(parse_state("5: ACTIVE_DEFER"), PortState::active_defer);
  EXPECT_EQ(parse_state("1"), PortState::down);
  for (const char* const bad : {"", "ACTIVE", "4:", "4: ", "6: ODD", "-1: NOP", ": ACTIVE", "44: ACTIVE"}) {
    EXPECT_FALSE(parse_state(bad)) << bad;
  }
}

TEST(PortValues, PhysicalState) {
  EXPECT_EQ(parse_physical_state("5: LinkUp"), PhysicalState::link_up);
  EXPECT_EQ(parse_physical_state("3: Disabled"), PhysicalState::disabled);
  EXPECT_EQ(parse_physical_state("7: Phy Test"), PhysicalState::test);
  for (const char* const bad : {"0: ", "8: X", "LinkUp", ""})
    EXPECT_EQ(parse_physical_state(bad), PhysicalState::unknown) << bad;
}

TEST(PortValues, Rate) {
  const auto ndr = parse_rate("400 Gb/sec (4X NDR)");
  ASSERT_TRUE(ndr);
  EXPECT_DOUBLE_EQ(ndr->gbps, 400);
  EXPECT_EQ(ndr->lanes, 4U);
  EXPECT_EQ(ndr->speed, "NDR");
  const auto sdr = parse_rate("2.5 Gb/sec (1X SDR)");
  ASSERT_TRUE(sdr);
  EXPECT_DOUBLE_EQ(sdr->gbps, 2.5);
  EXPECT_TRUE(parse_rate("800 Gb/sec (4X)"));
  for (const char* const bad :
       {"", "400", "400 Gb/sec", "Gb/sec (4X NDR)", "-1 Gb/sec (4X NDR)", "400 Gb/sec (0X NDR)", "400 Gb/sec (X NDR)",
        "400 Gb/sec 4X NDR", "999999999 Gb/sec (4X)", "4e2 Gb/sec (4X NDR)", "N/A", "2.55 Gb/sec (1X SDR)"}) {
    EXPECT_FALSE(parse_rate(bad)) << bad;
  }
}

TEST(PortValues, Hexadecimal) {
  EXPECT_EQ(parse_hex16("0x1a"), 0x1a);
  EXPECT_EQ(parse_hex16("0xFFFF"), 0xffff);
  for (const char* const bad : {"", "0x", "1a", "0x10000", "0xg", "0x-1", " 0x1"})
    EXPECT_FALSE(parse_hex16(bad)) << bad;
}

TEST(PortValues, Gids) {
  const auto local = Gid::parse("fe80:0000:0000:0000:0015:5dff:fe33:ff00");
  ASSERT_TRUE(local);
  EXPECT_TRUE(local->is_link_local());
  EXPECT_FALSE(local->is_unconfigured());
  EXPECT_EQ(local->to_string(), "fe80:0000:0000:0000:0015:5dff:fe33:ff00");
  const auto ipv4 = Gid::parse("0000:0000:0000:0000:0000:ffff:0a00:0001");
  ASSERT_TRUE(ipv4);
  EXPECT_TRUE(ipv4->is_ipv4());
  EXPECT_FALSE(ipv4->is_link_local());
  EXPECT_TRUE(Gid::parse("fe80:0000:0000:0000:0000:0000:0000:0000")->is_unconfigured());
  EXPECT_TRUE(Gid::parse("0000:0000:0000:0000:0000:0000:0000:0000")->is_zero());
  EXPECT_EQ(Gid::parse("fe80:0000:1234:0000:0000:0000:0000:0001")->flid(), 0x1234);
  for (const char* const bad :
       {"", "fe80::1", "fe80:0000:0000:0000:0015:5dff:fe33", "g000:0000:0000:0000:0000:0000:0000:0000",
        "fe80:0000:0000:0000:0015:5dff:fe33:ff00:", "fe80:0000:0000:0000:0015:5dff:fe33:ff001"}) {
    EXPECT_FALSE(Gid::parse(bad)) << bad;
  }
}

}  // namespace
}  // namespace amldist::fabric
