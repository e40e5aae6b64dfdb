#include "base/net/datagram_socket.hpp"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace amldist {
namespace {

/// What has come, and from where; empty if nothing has. On loopback a datagram is there when send() returns.
std::string received(const DatagramSocket& socket, DatagramPlace& from) {
  std::array<char, 64> buffer{};
  const auto got = socket.receive(buffer, from);
  return got ? std::string(buffer.data(), *got) : "";
}

TEST(DatagramSocket, TalksToBothFamilies) {
  const auto server = DatagramSocket::for_all();
  ASSERT_TRUE(server && server.bind(0));
  for (const char* const text : {"127.0.0.1", "::1"}) {
    const auto here = *IpAddress::parse(text);
    const auto client = DatagramSocket::towards(here);
    if (!client.send("question", {here, server.port()})) continue;  // the system has no IPv6
    DatagramPlace asker;
    EXPECT_EQ(received(server, asker), "question") << text;
    EXPECT_EQ(asker, (DatagramPlace{here, client.port()}));
    EXPECT_TRUE(server.send("answer", asker));
    DatagramPlace answerer;
    EXPECT_EQ(received(client, answerer), "answer") << text;
    EXPECT_EQ(answerer, (DatagramPlace{here, server.port()}));
  }
}

TEST(DatagramSocket, NeverWaits) {
  const auto socket = DatagramSocket::for_all();
  ASSERT_TRUE(socket.bind(0));
  DatagramPlace from;
  EXPECT_EQ(received(socket, from), "");
}

TEST(DatagramSocket, APortBelongsToOne) {
  const auto first = DatagramSocket::for_all();
  ASSERT_TRUE(first.bind(0));
  EXPECT_FALSE(DatagramSocket::for_all().bind(first.port()));
  EXPECT_FALSE(DatagramSocket::towards(*IpAddress::parse("127.0.0.1")).bind(first.port()));
}

}  // namespace
}  // namespace amldist
