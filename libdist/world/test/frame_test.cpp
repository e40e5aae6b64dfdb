#include "world/wireup/frame.hpp"

#include <gtest/gtest.h>

#include "pair.hpp"
#include "world/wireup/limits.hpp"

namespace amldist::world {
namespace {

enum class Kind : std::uint8_t { one = 1, two };

TEST(Frame, IsTheSameOnEveryMachine) {
  EXPECT_EQ(FrameWriter(Kind::two).number(0x0102).text("ab").take(),
            std::string("\x13\0\0\0\x02\x02\x01\0\0\0\0\0\0\x02\0\0\0\0\0\0\0ab", 23));
}

TEST(Frame, FieldsThatAreMissingAreEmpty) {
  Frame frame(FrameWriter(Kind::one).number(7).take().substr(frame_head));
  EXPECT_EQ(frame.number(), 7U);
  EXPECT_FALSE(frame.is_short());
  EXPECT_EQ(frame.text(), "");
  EXPECT_TRUE(frame.is_short());
  EXPECT_EQ(frame.number(), 0U);
}

TEST(Frame, ATextLongerThanItsFrameIsMissing) {
  Frame frame(FrameWriter(Kind::one).number(~std::uint64_t{0}).take().substr(frame_head));
  EXPECT_EQ(frame.text(), "");
  EXPECT_TRUE(frame.is_short());
}

TEST(FrameReader, TakesOneFrameAndLeavesTheRest) {
  Pair pair;
  const std::string one = FrameWriter(Kind::one).text("first").take();
  const std::string two = FrameWriter(Kind::two).text("second").take();
  FrameReader reader(100);
  for (const char byte : one.substr(0, one.size() - 1)) {
    pair.send(std::string_view(&byte, 1));
    EXPECT_EQ(reader.read(pair.near), FrameReader::State::incomplete);
  }
  pair.send(one.substr(one.size() - 1) + two);
  ASSERT_EQ(reader.read(pair.near), FrameReader::State::complete);
  EXPECT_EQ(reader.take().text(), "first");
  FrameReader next(100);  // of whoever gets the connection
  ASSERT_EQ(next.read(pair.near), FrameReader::State::complete);
  Frame second = next.take();
  EXPECT_EQ(second.kind<Kind>(), Kind::two);
  EXPECT_EQ(second.text(), "second");
}

TEST(FrameReader, ALengthOverTheLimitIsBrokenBeforeTheFrameComes) {
  Pair pair;
  pair.send(std::string_view("\x65\0\0\0", 4));
  EXPECT_EQ(FrameReader(100).read(pair.near), FrameReader::State::broken);
}

TEST(FrameReader, AnEmptyFrameIsBroken) {
  Pair pair;
  pair.send(std::string_view("\0\0\0\0", 4));
  EXPECT_EQ(FrameReader(100).read(pair.near), FrameReader::State::broken);
}

TEST(FrameReader, AnEndInTheMiddleIsClosed) {
  Pair pair;
  pair.send(FrameWriter(Kind::one).number(1).take().substr(0, 6));
  pair.far = FileDescriptor();
  EXPECT_EQ(FrameReader(100).read(pair.near), FrameReader::State::closed);
}

}  // namespace
}  // namespace amldist::world
