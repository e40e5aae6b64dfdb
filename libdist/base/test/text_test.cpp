#include "base/text/text.hpp"
#include "base/text/printable.hpp"

#include <array>
#include <limits>

#include "support.hpp"

namespace amldist::text {
namespace {

TEST(ToNumber, TakesDecimalDigitsOnly) {
  EXPECT_EQ(to_number("0", 9), 0U);
  EXPECT_EQ(to_number("007", 9), 7U);
  EXPECT_EQ(to_number("65535", 65535), 65535U);
  for (const char* const bad : {"", "-1", "+1", " 1", "1 ", "0x10", "1e3", "1.0", "one"}) {
    EXPECT_EQ(to_number(bad, 100000), std::nullopt) << bad;
  }
}

TEST(ToNumber, RefusesWhatIsAboveTheLimitWithoutWrapping) {
  constexpr auto most = std::numeric_limits<std::uint64_t>::max();
  EXPECT_EQ(to_number("18446744073709551615", most), most);
  EXPECT_EQ(to_number("18446744073709551616", most), std::nullopt);
  EXPECT_EQ(to_number("99999999999999999999999", most), std::nullopt);
  EXPECT_EQ(to_number("65536", 65535), std::nullopt);
  EXPECT_EQ(to_number("9", 8), std::nullopt);
  EXPECT_EQ(to_number("4294967296", 4294967295U), std::nullopt);
}

TEST(Split, KeepsEmptyPieces) {
  EXPECT_EQ(split("", ',').size(), 1U);
  EXPECT_EQ(split("a,", ',').size(), 2U);
  EXPECT_EQ(split(",,", ',').size(), 3U);
  EXPECT_EQ(split("a,b", ',')[1], "b");
}

TEST(Quote, MakesHostileInputPrintable) {
  EXPECT_EQ(quote("abc"), "'abc'");
  EXPECT_EQ(quote("a\nb\x1b[31m\x7f"), "'a\\x0ab\\x1b[31m\\x7f'");
  EXPECT_EQ(quote("\xc3\xa4"), "'\\xc3\\xa4'");
  EXPECT_EQ(quote("%s%n"), "'%s%n'");
  EXPECT_EQ(quote(std::string(100000, 'x')), "'" + std::string(40, 'x') + "...'");
}

TEST(Printable, EscapesAndCuts) {
  EXPECT_EQ(printable("node-1.cluster", 255), "node-1.cluster");
  EXPECT_EQ(printable("\x1b]0;x\x07", 255), "\\x1b]0;x\\x07");
  EXPECT_EQ(printable("abc", 3), "abc");
  EXPECT_EQ(printable("abcdef", 3), "abc...");
  EXPECT_EQ(printable("\x1b\x1b", 7), "\\x1b...");
}

TEST(Nearest, OffersSlipsButNotGuesses) {
  constexpr std::array<std::string_view, 4> kinds = {"pytorch", "tensorflow", "mpi", "jax"};
  EXPECT_EQ(nearest("pytorhc", kinds), "pytorch");
  EXPECT_EQ(nearest("PyTorch", kinds), "pytorch");
  EXPECT_EQ(nearest("tensorfow", kinds), "tensorflow");
  EXPECT_EQ(nearest("mip", kinds), "mpi");
  EXPECT_EQ(nearest("horovod", kinds), std::nullopt);
  EXPECT_EQ(nearest("", kinds), std::nullopt);
  EXPECT_EQ(nearest(std::string(100000, 'p'), kinds), std::nullopt);
}

TEST(Words, StandBetweenBlanksAndTabs) {
  EXPECT_EQ(words_of(" a\tbc  d "), (std::vector<std::string_view>{"a", "bc", "d"}));
  EXPECT_TRUE(words_of(" \t ").empty());
  EXPECT_TRUE(words_of("").empty());
}

TEST(Words, CountAndTrimAndLower) {
  EXPECT_EQ(count(1, "task"), "1 task");
  EXPECT_EQ(count(0, "node"), "0 nodes");
  EXPECT_EQ(count(2, "process"), "2 processes");
  EXPECT_EQ(trim(" \t a b\t"), "a b");
  EXPECT_EQ(trim(" \t "), "");
  EXPECT_EQ(to_lower("NcCl-1"), "nccl-1");
}

}  // namespace
}  // namespace amldist::text
