// The order of numbered names, and bytes as hexadecimal text.
#include "base/text/natural_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/text/hex.hpp"

namespace amldist {
namespace {

TEST(NaturalOrder, NumbersCountByTheirValue) {
  EXPECT_TRUE(natural_less("mlx5_2", "mlx5_10"));
  EXPECT_FALSE(natural_less("mlx5_10", "mlx5_2"));
  EXPECT_TRUE(natural_less("n9b1", "n10a1"));
  EXPECT_TRUE(natural_less("node", "node1"));
  EXPECT_TRUE(natural_less("a2", "b1"));
  EXPECT_TRUE(natural_less("n09", "n10"));
  EXPECT_FALSE(natural_less("n1", "n1"));
  // Beyond 64 bits.
  EXPECT_TRUE(natural_less("n99999999999999999999998", "n99999999999999999999999"));
}

TEST(NaturalOrder, LeadingZerosDoNotCount) {
  EXPECT_FALSE(natural_less("n001", "n1"));
  EXPECT_FALSE(natural_less("n1", "n001"));
  EXPECT_TRUE(natural_less("n001", "n2"));
  EXPECT_TRUE(natural_less("n000", "n1"));
}

TEST(Hex, TwoDigitsForEachByte) {
  std::string out;
  for (const int byte : {0x00, 0x0a, 0xff}) append_hex(out, static_cast<unsigned char>(byte));
  EXPECT_EQ(out, "000aff");
}

TEST(Hex, NumbersOfAFixedLength) {
  EXPECT_EQ(to_hex(0x1a, 2), "001a");
  EXPECT_EQ(to_hex(0xfedcba9876543210, 8), "fedcba9876543210");
  EXPECT_EQ(to_hex(0x12345, 2), "2345");
}

TEST(Hex, ReadsBackWhatItWrites) {
  const std::vector<std::pair<std::string_view, std::uint64_t>> numbers = {
      {"0", 0}, {"1a", 0x1a}, {"FfFf", 0xffff}, {"0000000000000001", 1}, {"ffffffffffffffff", UINT64_MAX}};
  for (const auto& [digits, number] : numbers) EXPECT_EQ(from_hex(digits), number) << digits;
  for (const std::string_view bad : {"", "g", "0x1", " 1", "1 ", "-1", "00000000000000001"})
    EXPECT_EQ(from_hex(bad), std::nullopt) << bad;
}

}  // namespace
}  // namespace amldist
