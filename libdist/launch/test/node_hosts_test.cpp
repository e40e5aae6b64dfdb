#include "launch/rendezvous/node_hosts.hpp"

#include <vector>

#include "support.hpp"

namespace amldist::launch {
namespace {

Hostlist hosts(const char* text) { return Hostlist::parse(text).value(); }

NodeHosts of(const std::vector<const char*>& texts) {
  std::vector<Ipv4> addresses;
  for (const char* const text : texts) addresses.push_back(Ipv4::parse(text).value());
  return NodeHosts::addresses(addresses);
}

TEST(NodeHosts, AreTheNamesWhereNothingIsSaid) {
  EXPECT_TRUE(NodeHosts().empty());
  EXPECT_EQ(NodeHosts().host_of(hosts("n[1-3]"), 2), "n3");
  EXPECT_EQ(NodeHosts::names("-ib0").host_of(hosts("n[1-3]"), 2), "n3-ib0");
  EXPECT_EQ(NodeHosts::names("-ib0").to_string(), "*-ib0");
}

TEST(NodeHosts, WriteNeighboursAsRanges) {
  const struct {
    std::vector<const char*> nodes;
    const char* text;
  } cases[] = {
      {{"10.0.0.1"}, "10.0.0.1"},
      {{"10.0.0.1", "10.0.0.2"}, "10.0.0.1-10.0.0.2"},
      {{"10.0.0.255", "10.0.1.0", "10.0.1.1", "10.0.0.7"}, "10.0.0.255-10.0.1.1,10.0.0.7"},
      {{"0.0.0.0", "10.0.0.2", "10.0.0.2", "10.0.0.1"}, "0.0.0.0,10.0.0.2,10.0.0.2,10.0.0.1"},
      {{"255.255.255.255", "0.0.0.0"}, "255.255.255.255,0.0.0.0"},
  };
  for (const auto& each : cases) {
    const NodeHosts written = of(each.nodes);
    EXPECT_EQ(written.to_string(), each.text);
    const auto read = NodeHosts::parse(each.text);
    ASSERT_TRUE(read) << each.text;
    EXPECT_EQ(*read, written);
    const Hostlist names = hosts(("n[1-" + std::to_string(each.nodes.size()) + "]").c_str());
    EXPECT_TRUE(read->fits(names));
    for (std::uint32_t node = 0; node < each.nodes.size(); ++node)
      EXPECT_EQ(read->host_of(names, node), each.nodes[node]);
  }
}

TEST(NodeHosts, FitOnlyTheirOwnNumberOfNodes) {
  const NodeHosts two = of({"10.0.0.1", "10.0.0.2"});
  EXPECT_FALSE(two.fits(hosts("n[1-3]")));
  EXPECT_FALSE(two.fits(hosts("n1")));
  EXPECT_EQ(two.host_of(hosts("n[1-3]"), 2), "n3") << "never beyond the end";
  EXPECT_TRUE(NodeHosts::names("-ib0").fits(hosts("n[1-3]")));
}

TEST(NodeHosts, RefuseWhatSrunDoesNotWrite) {
  for (const char* const bad : {"",
                                ",",
                                "*",
                                "*;",
                                "* ",
                                "*a b",
                                "10.0.0",
                                "10.0.0.1,",
                                ",10.0.0.1",
                                "10.0.0.1-",
                                "10.0.0.2-10.0.0.1",
                                "10.0.0.1-10.0.0.1",
                                "10.0.0.1,10.0.0.2",
                                "10.0.0.1-10.0.0.2,10.0.0.3",
                                "10.0.0.1-10.0.0.2-10.0.0.3",
                                "0.0.0.0-255.255.255.255",
                                "10.0.0.0-10.255.255.255",
                                "n1",
                                "10.0.0.1:80",
                                "10.0.0.1 ",
                                "::1"}) {
    EXPECT_FALSE(NodeHosts::parse(bad)) << bad;
  }
}

TEST(NodeHosts, OfAClusterInOneNetworkAreShort) {
  std::vector<Ipv4> addresses;
  for (std::uint32_t i = 0; i < 100000; ++i) addresses.push_back(Ipv4{0x0a000001 + i});
  EXPECT_EQ(NodeHosts::addresses(addresses).to_string(), "10.0.0.1-10.1.134.160");
}

}  // namespace
}  // namespace amldist::launch
