#include "base/net/ip_address.hpp"

#include <gtest/gtest.h>

#include "base/net/socket.hpp"
#include "base/text/port_ranges.hpp"

namespace amldist {
namespace {

TEST(IpAddress, ReadsBothFamilies) {
  for (const char* const text : {"10.1.2.3", "127.0.0.1", "fd00::1", "2001:db8::2:1", "::1", "fe80::1"}) {
    const auto address = IpAddress::parse(text);
    ASSERT_TRUE(address) << text;
    EXPECT_EQ(address->to_string(), text);
    EXPECT_EQ(IpAddress::from_bytes(address->as_bytes()), address);
  }
}

TEST(IpAddress, ReadsNothingElse) {
  using namespace std::string_view_literals;
  for (const auto text :
       {""sv, "node1"sv, "10.1.2"sv, "010.1.2.3"sv, "[::1]"sv, "fe80::1%eth0"sv, "::1\0"sv, ":::"sv}) {
    EXPECT_FALSE(IpAddress::parse(text)) << text;
  }
  EXPECT_FALSE(IpAddress::from_bytes("four"));
}

TEST(IpAddress, AMappedOneIsOfIpv4) {
  EXPECT_EQ(IpAddress::parse("::ffff:10.1.2.3"), IpAddress(*Ipv4::parse("10.1.2.3")));
  EXPECT_EQ(IpAddress::parse("10.1.2.3")->as_ipv4(), Ipv4::parse("10.1.2.3"));
  EXPECT_FALSE(IpAddress::parse("fd00::1")->as_ipv4());
}

TEST(IpAddress, KnowsWhatItIsFor) {
  EXPECT_TRUE(IpAddress::parse("::1")->is_loopback());
  EXPECT_TRUE(IpAddress::parse("127.0.1.1")->is_loopback());
  EXPECT_FALSE(IpAddress::parse("fd00::1")->is_loopback());
  EXPECT_TRUE(IpAddress::parse("::")->is_unspecified());
  EXPECT_TRUE(IpAddress::parse("0.0.0.0")->is_unspecified());
  EXPECT_FALSE(IpAddress::parse("::1")->is_unspecified());
  EXPECT_TRUE(IpAddress::parse("fe80::1")->is_link_local());
}

TEST(IpAddress, StandsInBracketsBeforeAPort) {
  EXPECT_EQ((Endpoint{"fd00::1", 20000}.to_string()), "[fd00::1]:20000");
  EXPECT_EQ((Endpoint{"10.0.0.1", 20000}.to_string()), "10.0.0.1:20000");
  EXPECT_EQ((Endpoint{"node1", 20000}.to_string()), "node1:20000");
}

/// Connects to a listener, and compares what both ends see.
void check_connection(const char* listens_at, const char* text) {
  const auto listener = listen_on(0, *IpAddress::parse(listens_at));
  if (!listener && IpAddress::parse(text)->as_ipv4() == std::nullopt) GTEST_SKIP() << "no IPv6 here";
  ASSERT_TRUE(listener);
  const auto address = *IpAddress::parse(text);
  const auto connection = connect_to(address, local_port(*listener), Clock::now() + std::chrono::seconds(5));
  ASSERT_TRUE(connection) << connection.error().message;
  ASSERT_TRUE(wait_until_ready(*listener, Readiness::read, Clock::now() + std::chrono::seconds(5)));
  const FileDescriptor accepted = accept_on(*listener);
  EXPECT_EQ(peer_address(*connection), address);
  EXPECT_EQ(own_address(accepted), address);
  EXPECT_EQ(peer_address(accepted), own_address(*connection));
}

TEST(SocketOfBothFamilies, TakesConnectionsOfIpv4) { check_connection("::", "127.0.0.1"); }

TEST(SocketOfBothFamilies, TakesConnectionsOfIpv6) {
  if (!listen_on(0, *IpAddress::parse("::1"))) GTEST_SKIP() << "no IPv6 here";
  check_connection("::", "::1");
}

TEST(SocketOfOneAddress, IsOfItsFamily) {
  check_connection("127.0.0.1", "127.0.0.1");
  check_connection("::1", "::1");
}

TEST(SocketWithinPorts, LeavesTheTakenOneFree) {
  const auto any = listen_on(0);
  ASSERT_TRUE(any);
  const std::uint16_t port = local_port(*any);
  const auto ports = PortRanges::parse(std::to_string(port) + "-" + std::to_string(port));
  ASSERT_TRUE(ports);
  EXPECT_FALSE(listen_within(*ports, {}, port));
}

}  // namespace
}  // namespace amldist
