#include "step/messages/control_message.hpp"

#include "step/messages/datagram.hpp"
#include "support.hpp"

namespace amldist::step {
namespace {

constexpr std::uint64_t token = 0x00c0ffee00c0ffee;

TEST(Texts, ReadBackWhatTheyWrite) {
  const std::string record = "1;step=12.0;addr=10.0.0.1";
  const std::string datagram = to_datagram(Subject::record, record, token);
  EXPECT_EQ(datagram, "aml-dist;1;00c0ffee00c0ffee;record;1;step=12.0;addr=10.0.0.1");
  EXPECT_EQ(parse_text(Subject::record, datagram, token), record);
  EXPECT_EQ(parse_text(Subject::address, to_datagram(Subject::address, "10.0.0.1", token), token), "10.0.0.1");
}

TEST(Texts, RefuseEverythingElse) {
  const std::string good = to_datagram(Subject::address, "10.0.0.1", token);
  const std::size_t head = good.size() - std::string_view("10.0.0.1").size();
  EXPECT_FALSE(parse_text(Subject::record, good, token)) << "another subject";
  EXPECT_FALSE(parse_text(Subject::address, good, token + 1)) << "another step's";
  for (std::size_t length = 0; length < head; ++length) {
    EXPECT_FALSE(parse_text(Subject::address, good.substr(0, length), token)) << length;
  }
  EXPECT_FALSE(parse_text(Subject::address, good + std::string(70000, '1'), token));
  EXPECT_FALSE(parse_message_type(good, token));
}

}  // namespace
}  // namespace amldist::step
