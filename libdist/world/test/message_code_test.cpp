#include "world/wireup/message_code.hpp"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace amldist::world {
namespace {

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

constexpr std::string_view header = "signature length";
const Key key = Key::from_secret("secret");

TEST(Crc32c, IsTheStandards) {  // RFC 3720, appendix B.4
  EXPECT_EQ(crc32c(0, bytes("123456789")), 0xe3069283U);
  EXPECT_EQ(crc32c(0, bytes(std::string(32, '\0'))), 0x8a9136aaU);
  EXPECT_EQ(crc32c(crc32c(0, bytes("1234")), bytes("56789")), 0xe3069283U);
}

class MessageCodes : public ::testing::TestWithParam<Integrity> {
 protected:
  world::MessageCodes sender_{GetParam(), key};
  world::MessageCodes receiver_{GetParam(), key};
};

TEST_P(MessageCodes, AreTheSameOnBothSides) {
  for (const std::string_view data : {"first", "second", "", "fourth"}) {
    EXPECT_EQ(sender_.next(bytes(header), bytes(data)), receiver_.next(bytes(header), bytes(data)));
  }
}

TEST_P(MessageCodes, DifferForEveryBit) {
  const std::string data(37, 'd');
  const MessageCode code = world::MessageCodes(GetParam(), key).next(bytes(header), bytes(data));
  for (std::size_t bit = 0; bit < 8 * data.size(); ++bit) {
    std::string changed = data;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_NE(world::MessageCodes(GetParam(), key).next(bytes(header), bytes(changed)), code) << bit;
  }
  EXPECT_NE(world::MessageCodes(GetParam(), key).next(bytes("another header!!"), bytes(data)), code);
}

TEST_P(MessageCodes, NoticeAMessageThatIsRepeatedLeftOutOrMoved) {
  const MessageCode first = sender_.next(bytes(header), bytes("a"));
  const MessageCode second = sender_.next(bytes(header), bytes("a"));
  EXPECT_NE(first, second) << "so that neither can stand for the other";
  EXPECT_NE(receiver_.next(bytes(header), bytes("a")), second) << "left out, or moved";
  EXPECT_NE(receiver_.next(bytes(header), bytes("a")), first) << "repeated";
}

INSTANTIATE_TEST_SUITE_P(Both, MessageCodes, ::testing::Values(Integrity::crc, Integrity::mac));

TEST(MessageCodesUnderMac, NeedTheKey) {
  world::MessageCodes own(Integrity::mac, key);
  world::MessageCodes others(Integrity::mac, key.derive("another direction"));
  EXPECT_NE(own.next(bytes(header), bytes("data")), others.next(bytes(header), bytes("data")));
}

}  // namespace
}  // namespace amldist::world
