#include "launch/rendezvous/master_address.hpp"

#include <unistd.h>

#include <set>

#include "launch/rendezvous/name_target.hpp"
#include "support.hpp"

namespace amldist::launch::master_address_test {
namespace {

using Addresses = std::map<std::string, std::string, std::less<>>;

/// A network where names have the given addresses, seen from the host `here` with the address `own`.
NetworkView network(const Addresses& addresses, const std::string& here = "login", const char* own = "10.0.0.99") {
  NetworkView view;
  view.address_of_node = [addresses](const std::string& name) -> Result<Ipv4> {
    const auto found = addresses.find(name);
    if (found == addresses.end()) return Error{Errc::unavailable, "no such host " + name};
    return *Ipv4::parse(found->second);
  };
  view.resolve = view.address_of_node;
  view.source_towards = [own](Ipv4) -> Result<Ipv4> { return *Ipv4::parse(own); };
  view.is_here = [here](const std::string& name) { return name == here; };
  view.interface_address = [](std::string_view name, const auto&) -> Result<Ipv4> {
    if (name != "ib0") return Error{Errc::unavailable, "no such interface"};
    return *Ipv4::parse("192.168.0.7");
  };
  return view;
}

Placement placement(const char* hosts, std::vector<std::uint32_t> node_of_rank) {
  auto list = Hostlist::parse(hosts).value();
  auto map = TaskMap::from_nodes_of_ranks(node_of_rank, static_cast<std::uint32_t>(list.size())).value();
  return {std::move(list), std::move(map), Provenance::exact, "test"};
}

Result<std::string> choose(const char* option, const Placement& where, const NetworkView& view,
                           const SitePolicy& policy = SitePolicy::defaults()) {
  return choose_master_address(parse_spec(option).value(), policy, where, view);
}

const Addresses two = {{"n1", "10.0.0.1"}, {"n2", "10.0.0.2"}, {"n1-ib0", "192.168.0.1"}};

TEST(MasterAddress, IsTheAddressOfRankZerosHost) {
  EXPECT_EQ(choose("pytorch", placement("n[1-2]", {0, 1}), network(two)).value(), "10.0.0.1");
  EXPECT_EQ(choose("pytorch", placement("n[1-2]", {1, 0}), network(two)).value(), "10.0.0.2") << "host file";
}

TEST(MasterAddress, IsANameWhenAskedFor) {
  EXPECT_EQ(choose("pytorch,master_addr=name", placement("n[1-2]", {0, 1}), network(two)).value(), "n1");
  SitePolicy policy = SitePolicy::defaults();
  policy.master_addr = MasterAddress::Form::name;
  EXPECT_EQ(choose("pytorch", placement("n[1-2]", {0, 1}), network(two), policy).value(), "n1");
  EXPECT_EQ(choose("pytorch,master_addr=ip", placement("n[1-2]", {0, 1}), network(two), policy).value(), "10.0.0.1");
}

TEST(MasterAddress, IsTheUsersHostWithoutAnyLookUp) {
  EXPECT_EQ(choose("pytorch,master_addr=my.host", placement("n[1-2]", {0, 1}), NetworkView{}).value(), "my.host");
}

TEST(MasterAddress, IsLeftToRankZerosNodeWhereTheSiteNamesAnInterface) {
  SitePolicy policy = SitePolicy::defaults();
  policy.interface = "ib0";
  const Placement where = placement("n[1-2]", {0, 1});
  EXPECT_EQ(choose("pytorch", where, network(two), policy).value(), "@ib0");
  EXPECT_EQ(interface_to_ask("@ib0"), "ib0");
  EXPECT_EQ(interface_to_ask("10.0.0.1"), std::nullopt);
  EXPECT_EQ(choose("pytorch", where, network(two, "n1"), policy).value(), "192.168.0.7") << "srun runs there";
  EXPECT_EQ(choose("pytorch,master_addr=name", where, network(two), policy).value(), "n1");
  EXPECT_EQ(choose("pytorch,master_addr=my.host", where, network(two), policy).value(), "my.host");
  policy.interface = "ib9";
  EXPECT_FALSE(choose("pytorch", where, network(two, "n1"), policy));
}

TEST(MasterAddress, TakesTheSitesSuffix) {
  SitePolicy policy = SitePolicy::defaults();
  policy.suffix = "-ib0";
  EXPECT_EQ(choose("pytorch", placement("n[1-2]", {0, 1}), network(two), policy).value(), "192.168.0.1");
  EXPECT_EQ(choose("pytorch,master_addr=name", placement("n[1-2]", {0, 1}), network(two), policy).value(), "n1-ib0");
}

TEST(MasterAddress, StaysInsideTheSitesNetwork) {
  SitePolicy policy = SitePolicy::defaults();
  policy.network = Ipv4Network::parse("192.168.0.0/16");
  const auto outside = choose("pytorch", placement("n[1-2]", {0, 1}), network(two), policy);
  ASSERT_FALSE(outside);
  testing::expect_sentence(outside.error().message);
  policy.network = Ipv4Network::parse("10.0.0.0/8");
  EXPECT_TRUE(choose("pytorch", placement("n[1-2]", {0, 1}), network(two), policy));
}

TEST(MasterAddress, StaysInsideTheSitesNetworkAsAName) {
  SitePolicy policy = SitePolicy::defaults();
  policy.network = Ipv4Network::parse("192.168.0.0/16");
  const Placement where = placement("n[1-2]", {0, 1});
  const auto outside = choose("pytorch,master_addr=name", where, network(two), policy);
  ASSERT_FALSE(outside);
  testing::expect_sentence(outside.error().message);
  policy.suffix = "-ib0";
  EXPECT_EQ(choose("pytorch,master_addr=name", where, network(two), policy).value(), "n1-ib0");
  EXPECT_EQ(choose("pytorch,master_addr=name", where, network({}), policy).value(), "n1-ib0")
      << "rank 0's node says it";
}

/// A network where the named hosts have IPv6 only.
NetworkView with_ipv6_only(NetworkView view, std::set<std::string, std::less<>> hosts) {
  view.has_ipv6_only = [hosts = std::move(hosts)](const std::string& name) { return hosts.contains(name); };
  return view;
}

TEST(MasterAddress, IsANameWhereRankZerosHostHasIpv6Only) {
  const Placement where = placement("n[1-2]", {0, 1});
  const NetworkView six = with_ipv6_only(network({}), {"n1", "n2", "n1-ib0"});
  SitePolicy policy = SitePolicy::defaults();
  EXPECT_EQ(choose("pytorch", where, six).value(), "n1");
  EXPECT_FALSE(choose("pytorch,master_addr=ip", where, six)) << "the user insists";
  EXPECT_FALSE(choose("pytorch", placement("n[3-4]", {0, 1}), six)) << "a host that nobody knows";
  policy.suffix = "-ib0";
  EXPECT_EQ(choose("pytorch", where, six, policy).value(), "n1-ib0");
  policy.network = Ipv4Network::parse("10.0.0.0/8");
  EXPECT_FALSE(choose("pytorch", where, six, policy)) << "the site insists on IPv4";
  EXPECT_EQ(choose("pytorch", where, with_ipv6_only(network(two), {"n2"})).value(), "10.0.0.1");
}

TEST(MasterAddress, OfIpv6IsAdvisedToBeAName) {
  const NetworkView here = this_machine({});
  const auto address = here.resolve("::1");
  ASSERT_FALSE(address);
  EXPECT_NE(address.error().message.find("(::1 is IPv6)"), std::string::npos) << address.error().message;
  EXPECT_NE(address.error().message.find("use master_addr=name"), std::string::npos);
  EXPECT_TRUE(here.has_ipv6_only("::1"));
  EXPECT_FALSE(here.has_ipv6_only("127.0.0.1"));
  EXPECT_FALSE(here.has_ipv6_only("no-such-host.invalid"));
}

TEST(NameTarget, IsWhereANameLeadsOnThisNode) {
  using enum NameTarget::Where;
  const std::vector<IpAddress> own = {*IpAddress::parse("10.0.0.1"), *IpAddress::parse("fd00::1")};
  struct Case {
    Result<std::vector<IpAddress>> found;
    NameTarget target;
  };
  const auto of = [](std::vector<const char*> texts) {
    std::vector<IpAddress> out;
    for (const char* const each : texts) out.push_back(*IpAddress::parse(each));
    return out;
  };
  const Case cases[] = {
      {of({"10.0.0.1"}), {here, "10.0.0.1"}},
      {of({"10.9.9.9", "10.0.0.1"}), {here, "10.9.9.9"}},
      {of({"fd00::1"}), {here, "fd00::1"}},
      {of({"127.0.1.1"}), {loopback, "127.0.1.1"}},
      {of({"::1"}), {loopback, "::1"}},
      {of({"0.0.0.0"}), {loopback, "0.0.0.0"}},
      {of({"10.9.9.9"}), {elsewhere, "10.9.9.9"}},
      {Error{Errc::unavailable, ""}, {nowhere}},
      {Error{Errc::timeout, ""}, {unknown}},
  };
  for (const Case& each : cases) EXPECT_EQ(target_of(each.found, own), each.target) << each.target.address;
}

TEST(NameTarget, OfANameThatNobodyResolvesIsNowhere) {
  const UserRights me = {::getuid(), ::getgid()};
  using std::chrono::milliseconds;
  EXPECT_EQ(look_up_target("127.0.0.1", {}, me, milliseconds(0)).where, NameTarget::Where::loopback);
  const auto where = look_up_target("no-such-host.invalid", {}, me, milliseconds(5000)).where;
  EXPECT_TRUE(where == NameTarget::Where::nowhere || where == NameTarget::Where::unknown);
  EXPECT_EQ(look_up_target("no-such-host.invalid", {}, me, milliseconds(0)).where, NameTarget::Where::unknown);
}

TEST(MasterAddress, IsNeverLoopbackOnSeveralNodes) {
  const Addresses debian = {{"n1", "127.0.1.1"}, {"n2", "10.0.0.2"}};
  // srun on n1 itself, where Debian's /etc/hosts gives 127.0.1.1: the way out to n2 counts
  EXPECT_EQ(choose("pytorch", placement("n[1-2]", {0, 1}), network(debian, "n1", "10.0.0.1")).value(), "10.0.0.1");
  // elsewhere such an answer is nonsense, and the way out of here says nothing about n1
  const auto wrong = choose("pytorch", placement("n[1-2]", {0, 1}), network(debian, "login"));
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("127.0.1.1"), std::string::npos);
  // no way out
  EXPECT_FALSE(choose("pytorch", placement("n[1-2]", {0, 1}), network(debian, "n1", "127.0.0.1")));
}

TEST(MasterAddress, MayBeLoopbackOnOneNodeOrOneMachine) {
  EXPECT_EQ(choose("pytorch", placement("n1", {0, 0}), network({{"n1", "127.0.1.1"}})).value(), "127.0.1.1");
  const Addresses one_machine = {{"n1", "127.0.0.1"}, {"n2", "127.0.0.1"}};
  EXPECT_EQ(choose("pytorch", placement("n[1-2]", {0, 1}), network(one_machine)).value(), "127.0.0.1");
}

/// How TF_CONFIG names node `node`, where nodes are n1, n2, n3 and rank 0 is on the first.
std::string peer(const char* option, const NetworkView& view, const SitePolicy& policy, std::uint32_t node) {
  const Placement where = placement("n[1-3]", {0, 1, 2});
  const auto master = choose(option, where, view, policy);
  EXPECT_TRUE(master) << master.error().message;
  const auto chosen = choose_node_hosts(parse_spec(option).value(), policy, where, *master, view);
  if (!chosen) return chosen.error().message;
  EXPECT_TRUE(chosen->fits(where.hosts));
  return chosen->host_of(where.hosts, node);
}

const Addresses three = {{"n1", "10.0.0.1"},        {"n2", "10.0.0.2"},        {"n3", "10.0.7.3"},
                         {"n1-ib0", "192.168.0.1"}, {"n2-ib0", "192.168.0.2"}, {"n3-ib0", "192.168.0.3"}};

TEST(NodeHostsChoice, FollowsTheRuleOfTheMaster) {
  SitePolicy site = SitePolicy::defaults();
  EXPECT_EQ(peer("tensorflow", network(three), site, 1), "10.0.0.2");
  EXPECT_EQ(peer("tensorflow", network(three), site, 2), "10.0.7.3");
  EXPECT_EQ(peer("tensorflow,master_addr=name", network(three), site, 1), "n2");
  EXPECT_EQ(peer("tensorflow,master_addr=my.host", network(three), site, 1), "10.0.0.2") << "by the site's rule";
  site.suffix = "-ib0";
  EXPECT_EQ(peer("tensorflow", network(three), site, 1), "192.168.0.2");
  EXPECT_EQ(peer("tensorflow,master_addr=name", network(three), site, 2), "n3-ib0");
  site.master_addr = MasterAddress::Form::name;
  EXPECT_EQ(peer("tensorflow", network(three), site, 1), "n2-ib0");
  EXPECT_EQ(peer("tensorflow,master_addr=ip", network(three), site, 1), "192.168.0.2");
}

TEST(NodeHostsChoice, AreNamesWhereAHostHasIpv6Only) {
  const SitePolicy site = SitePolicy::defaults();
  const NetworkView none = with_ipv6_only(network({}), {"n1", "n2", "n3"});
  EXPECT_EQ(peer("tensorflow", none, site, 2), "n3");
  Addresses without_last = three;
  without_last.erase("n3");
  const NetworkView mixed = with_ipv6_only(network(without_last), {"n3"});
  EXPECT_EQ(peer("tensorflow", mixed, site, 1), "n2") << "all are named";
  EXPECT_EQ(peer("tensorflow,master_addr=ip", mixed, site, 2), "no such host n3");
}

TEST(NodeHostsChoice, IsMadeForTensorflowOnSeveralNodesOnly) {
  const Placement several = placement("n[1-2]", {0, 1});
  const SitePolicy site = SitePolicy::defaults();
  for (const char* const kind : {"pytorch", "mpi", "jax"}) {
    const auto chosen = choose_node_hosts(parse_spec(kind).value(), site, several, "10.0.0.1", NetworkView{});
    EXPECT_TRUE(chosen && chosen->empty()) << kind << " asks nobody";
  }
  const auto alone =
      choose_node_hosts(parse_spec("tensorflow").value(), site, placement("n1", {0, 0}), "10.0.0.1", NetworkView{});
  EXPECT_TRUE(alone && alone->empty());
}

TEST(NodeHostsChoice, IsNeverLoopbackOnSeveralNodes) {
  // srun on n2, whose own name is Debian's 127.0.1.1 there: its way out to rank 0's node counts
  const Addresses debian = {{"n1", "10.0.0.1"}, {"n2", "127.0.1.1"}, {"n3", "10.0.0.3"}};
  const SitePolicy site = SitePolicy::defaults();
  EXPECT_EQ(peer("tensorflow", network(debian, "n2", "10.0.0.2"), site, 1), "10.0.0.2");
  const std::string refused = peer("tensorflow", network(debian, "login"), site, 1);
  EXPECT_NE(refused.find("'n2'"), std::string::npos) << refused;
  EXPECT_NE(refused.find("127.0.1.1"), std::string::npos) << refused;
  testing::expect_sentence(refused);
  const Addresses one_machine = {{"n1", "127.0.0.1"}, {"n2", "127.0.0.1"}, {"n3", "127.0.0.1"}};
  EXPECT_EQ(peer("tensorflow", network(one_machine), site, 2), "127.0.0.1");
}

TEST(NodeHostsChoice, StaysInsideTheSitesNetwork) {
  SitePolicy site = SitePolicy::defaults();
  site.network = Ipv4Network::parse("10.0.0.0/24");
  EXPECT_EQ(peer("tensorflow", network(two), site, 1).substr(0, 4), "no s") << "n3 has no address";
  const std::string outside = peer("tensorflow", network(three), site, 1);
  EXPECT_NE(outside.find("'n3' has the address 10.0.7.3, outside"), std::string::npos) << outside;
  site.network = Ipv4Network::parse("10.0.0.0/16");
  EXPECT_EQ(peer("tensorflow", network(three), site, 1), "10.0.0.2");
}

TEST(NodeHostsChoice, OfASiteWithAnInterfaceNeedsAnotherRuleForTheOthers) {
  SitePolicy site = SitePolicy::defaults();
  site.interface = "ib0";
  const std::string refused = peer("tensorflow", network(three), site, 1);
  EXPECT_NE(refused.find("interface ib0: use master_addr=name"), std::string::npos) << refused;
  testing::expect_sentence(refused);
  EXPECT_EQ(peer("tensorflow,master_addr=name", network(three), site, 1), "n2");
  site.network = Ipv4Network::parse("10.0.0.0/16");
  EXPECT_EQ(peer("tensorflow", network(three), site, 1), "10.0.0.2") << "NodeAddr, within the network";
  site.network = Ipv4Network::parse("192.168.0.0/16");
  EXPECT_NE(peer("tensorflow", network(three), site, 1).find("outside"), std::string::npos);
  site.suffix = "-ib0";
  EXPECT_EQ(peer("tensorflow", network(three), site, 1), "192.168.0.2");
}

TEST(MasterAddress, OfTheUsersOwnIsNoLoopbackOnSeveralNodes) {
  const Placement several = placement("n[1-2]", {0, 1});
  for (const char* const oneself :
       {"127.0.0.1", "127.3.2.1", "0.0.0.0", "localhost", "LocalHost", "localhost.localdomain"}) {
    const Rendezvous key{oneself, 1, Origin::option, Origin::computed};
    const Rendezvous variable{oneself, 1, Origin::environment, Origin::computed};
    for (const Rendezvous& chosen : {key, variable}) {
      const auto refused = refuse_loopback(chosen, several, network(two));
      ASSERT_FALSE(refused) << oneself;
      testing::expect_sentence(refused.error().message);
      EXPECT_NE(refused.error().message.find("2 nodes"), std::string::npos);
    }
    EXPECT_TRUE(refuse_loopback(key, placement("n1", {0, 0}), network(two))) << "one node";
    EXPECT_TRUE(refuse_loopback(key, several, network({{"n1", "127.0.0.1"}, {"n2", "127.0.0.1"}}))) << "one machine";
  }
  for (const char* const other : {"10.0.0.9", "n1", "localhoster", "128.0.0.1"}) {
    EXPECT_TRUE(refuse_loopback({other, 1, Origin::environment, Origin::computed}, several, network(two))) << other;
  }
}

TEST(MasterAddress, RefusesAnUnknownHost) {
  EXPECT_FALSE(choose("pytorch", placement("x[1-2]", {0, 1}), network(two)));
}

TEST(ThisMachine, AsksSlurmFirstAndTheResolverThen) {
  const NetworkView view = this_machine([](const std::string& node) -> Result<Ipv4> {
    if (node == "n1") return *Ipv4::parse("10.1.2.3");
    return Error{Errc::unavailable, "unknown"};
  });
  EXPECT_EQ(view.address_of_node("n1").value().to_string(), "10.1.2.3");
  EXPECT_EQ(view.address_of_node("127.9.9.9").value().to_string(), "127.9.9.9");
  EXPECT_TRUE(view.resolve("localhost").value().is_loopback());
  EXPECT_EQ(view.source_towards(*Ipv4::parse("127.0.0.1")).value().to_string(), "127.0.0.1");
  const auto unknown = view.resolve("no-such-host.invalid");
  ASSERT_FALSE(unknown);
  testing::expect_sentence(unknown.error().message);
}

TEST(NameTargets, AskForEachNameOnceAndForNoneAfterASilence) {
  using enum NameTarget::Where;
  std::vector<std::string> asked;
  const NameTargets targets([&asked](const std::string& name) {
    asked.push_back(name);
    return NameTarget{name == "silent" ? unknown : here};
  });
  const NameTargets copy = targets;
  for (const char* const name : {"a", "a", "silent", "silent", "b", "10.0.0.1"}) {
    const bool is_known = std::string(name) == "a" || std::string(name) == "10.0.0.1";
    EXPECT_EQ(copy(name).where, is_known ? here : unknown) << name;
  }
  EXPECT_EQ(targets("a").where, here);
  EXPECT_EQ(asked, (std::vector<std::string>{"a", "silent", "10.0.0.1"}));
}

TEST(KernelPorts, AreReadFromThisKernel) {
  const PortRanges taken = kernel_ports();
  ASSERT_FALSE(taken.empty()) << "Linux without ip_local_port_range";
  EXPECT_LT(PortRanges::parse("1-65535").value().without(taken).size(), 65535U);
}

TEST(Ipv4, IsStrict) {
  EXPECT_EQ(Ipv4::parse("10.0.0.1")->to_string(), "10.0.0.1");
  EXPECT_EQ(Ipv4::parse("255.255.255.255")->bits, 0xffffffffU);
  for (const char* const bad :
       {"", "1.2.3", "1.2.3.4.5", "1.2.3.256", "01.2.3.4", "1.2.3.4 ", "a.b.c.d", "1..2.3", "1.2.3."}) {
    EXPECT_FALSE(Ipv4::parse(bad)) << bad;
  }
  EXPECT_TRUE(Ipv4Network::parse("10.0.0.0/8")->contains(*Ipv4::parse("10.255.1.2")));
  EXPECT_FALSE(Ipv4Network::parse("10.0.0.0/8")->contains(*Ipv4::parse("11.0.0.0")));
  EXPECT_TRUE(Ipv4Network::parse("0.0.0.0/0")->contains(*Ipv4::parse("11.0.0.0")));
  for (const char* const bad : {"10.0.0.0", "10.0.0.0/33", "10.0.0.0/", "/8", "10.0.0/8"}) {
    EXPECT_FALSE(Ipv4Network::parse(bad)) << bad;
  }
}

}  // namespace
}  // namespace amldist::launch::master_address_test
