#include "base/net/own_network.hpp"

#include "support.hpp"

namespace amldist {
namespace {

constexpr std::string_view debian =
    "127.0.0.1\tlocalhost\n"
    "127.0.1.1\tnode1.cluster.local\tnode1  # Debian's installer wrote this\n"
    "10.0.0.1 node1\n"
    "# 10.0.0.9 node9\n"
    "::1 localhost ip6-localhost\n"
    "\n"
    "10.0.0.2   node2 n2\r\n"
    "10.0.0.3 node3";

TEST(HostsFile, GivesTheFirstAddressOfAName) {
  EXPECT_EQ(find_in_hosts(debian, "node1")->to_string(), "127.0.1.1");
  EXPECT_EQ(find_in_hosts(debian, "node1.cluster.local")->to_string(), "127.0.1.1");
  EXPECT_EQ(find_in_hosts(debian, "n2")->to_string(), "10.0.0.2");
  EXPECT_EQ(find_in_hosts(debian, "node3")->to_string(), "10.0.0.3") << "the last line may lack its newline";
  for (const char* const absent : {"node9", "ip6-localhost", "installer", "node", "", "10.0.0.1"}) {
    EXPECT_FALSE(find_in_hosts(debian, absent)) << absent;
  }
  EXPECT_FALSE(find_in_hosts("", "node1"));
}

TEST(Interface, LeadsToThePeer) {
  EXPECT_EQ(interface_towards(*IpAddress::parse("127.0.0.1")).value(), "lo");
  const auto six = interface_towards(*IpAddress::parse("::1"));
  if (six) EXPECT_EQ(*six, "lo");
  else testing::expect_sentence(six.error().message);  // the system has no IPv6
}

TEST(OwnNetwork, LoopbackIsNoInterfaceForOthers) {
  const auto refused = address_of_interface("lo", std::nullopt);
  ASSERT_FALSE(refused);
  testing::expect_sentence(refused.error().message);
}

}  // namespace
}  // namespace amldist
