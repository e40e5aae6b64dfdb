// The selection grammars of NCCL and UCX. Expectations follow parseStringList() and matchIfList() of NCCL, and
// ucp_is_resource_in_device_list() of UCX, worked out by hand.
#include <gtest/gtest.h>

#include "fabric/facts/selection.hpp"
#include "support.hpp"

namespace amldist::fabric::selection_test {
namespace {

struct Vector {
  const char* selection;
  const char* device;
  std::uint32_t port;
  bool taken;
};

TEST(NcclSelection, TakesWhatNcclTakes) {
  constexpr Vector vectors[] = {
      {"", "mlx5_0", 1, true},
      {"mlx5_1", "mlx5_1", 1, true},
      {"mlx5_1", "mlx5_10", 1, true},
      {"mlx5_1", "mlx5_2", 1, false},
      {"=mlx5_1", "mlx5_10", 1, false},
      {"=mlx5_1", "mlx5_1", 2, true},
      {"=mlx5_1:1", "mlx5_1", 2, false},
      {"mlx5_1:2,mlx5_3", "mlx5_1", 2, true},
      {"mlx5_1:2,mlx5_3", "mlx5_1", 1, false},
      {"mlx5_1:2,mlx5_3", "mlx5_3", 7, true},
      {"^mlx5_1", "mlx5_10", 1, false},
      {"^mlx5_1", "mlx5_2", 1, true},
      {"^=mlx5_1", "mlx5_10", 1, true},
      {"^", "mlx5_0", 1, false},
      {"=", "mlx5_0", 1, true},
      {"=^mlx5_1", "mlx5_1", 1, false},  // after '=' a '^' is part of the name
      {",,mlx5_1,", "mlx5_1", 1, true},
      {":1,mlx5_1", "mlx5_0", 1, false},
      {"mlx5_1:x", "mlx5_1", 1, false},  // atoi: port 0, which no device has
      {"mlx5_1:", "mlx5_1", 2, true},    // before 2.30: port 0
      {"mlx5_1:1:2:3", "mlx5_1", 1, true},
      {"mlx5_1:-1", "mlx5_1", 4, true},
      {" mlx5_1", "mlx5_1", 1, false},
  };
  for (const Vector& each : vectors) {
    EXPECT_EQ(NcclSelection::parse(each.selection).takes(each.device, each.port), each.taken)
        << "'" << each.selection << "' " << each.device << ":" << each.port;
  }
}

TEST(NcclSelection, LooksAtThirtyTwoEntriesAsNcclDoes) {
  std::string list;
  for (int i = 0; i < 40; ++i) list += "d" + std::to_string(100 + i) + ",";
  EXPECT_TRUE(NcclSelection::parse(list).takes("d131", 1));
  EXPECT_FALSE(NcclSelection::parse(list).takes("d132", 1));
}

TEST(UcxSelection, IsExact) {
  EXPECT_TRUE(UcxSelection::parse("mlx5_2:1").takes("mlx5_2", 1));
  EXPECT_FALSE(UcxSelection::parse("mlx5_2").takes("mlx5_2", 1));
  EXPECT_FALSE(UcxSelection::parse("mlx5_2:1").takes("mlx5_2", 2));
  EXPECT_TRUE(UcxSelection::parse("eth0,all").takes("mlx5_9", 1));
  EXPECT_FALSE(UcxSelection::parse("").takes("mlx5_0", 1));
  EXPECT_TRUE(UcxSelection::parse("^mlx5_an0:1").takes("mlx5_ib0", 1));
  EXPECT_FALSE(UcxSelection::parse("^mlx5_an0:1,eth0").takes("mlx5_an0", 1));
  EXPECT_TRUE(UcxSelection::parse("mlx5_ib[0-7]:1").takes("mlx5_ib7", 1));
  EXPECT_FALSE(UcxSelection::parse("mlx5_ib[0-7]:1").takes("mlx5_ib8", 1));
  EXPECT_FALSE(UcxSelection::parse("mlx5_ib[0-7]:1").takes("mlx5_ib7", 2));
  EXPECT_FALSE(UcxSelection::parse("mlx5_ib[0-:1").takes("mlx5_ib0", 1));
}

TEST(UcxTransports, AllowVerbsOrNot) {
  EXPECT_EQ(ucx_allows_verbs("all"), true);
  EXPECT_EQ(ucx_allows_verbs("rc,sm"), true);
  EXPECT_EQ(ucx_allows_verbs("\\rc,sm"), true);
  EXPECT_EQ(ucx_allows_verbs("tcp,sm,self"), false);
  EXPECT_EQ(ucx_allows_verbs("^ib"), false);
  EXPECT_EQ(ucx_allows_verbs("^tcp"), true);
  EXPECT_EQ(ucx_allows_verbs("^rc"), std::nullopt) << "ud may be left: not known here";
}

PortFacts roce_port(std::vector<GidEntry> gids) {
  PortFacts port;
  port.link_layer = {Attribute::State::present, "Ethernet"};
  port.state = {Attribute::State::present, "4: ACTIVE"};
  port.gids = std::move(gids);
  return port;
}

GidEntry entry(std::uint32_t index, const char* gid, const char* type) {
  return {index, *Gid::parse(gid), type, "eth0"};
}

constexpr const char* local = "fe80:0000:0000:0000:0a00:27ff:fe00:0001";
constexpr const char* first = "0000:0000:0000:0000:0000:ffff:0a00:0001";
constexpr const char* second = "0000:0000:0000:0000:0000:ffff:0a01:0001";

TEST(NcclGid, PrefersVersion2OfTheFamilyAndTheRange) {
  const auto port =
      roce_port({entry(0, local, "IB/RoCE v1"), entry(1, local, "RoCE v2"), entry(2, first, "IB/RoCE v1"),
                 entry(3, first, "RoCE v2"), entry(4, second, "IB/RoCE v1"), entry(5, second, "RoCE v2")});
  const auto index = [&](testing::Variables variables) {
    return nccl_gid_index(amldist::testing::environment(std::move(variables)), port);
  };
  EXPECT_EQ(index({}), 3U);
  EXPECT_EQ(index({{"NCCL_IB_GID_INDEX", "5"}}), 5U);
  EXPECT_EQ(index({{"NCCL_IB_GID_INDEX", "-1"}}), 3U);
  EXPECT_EQ(index({{"NCCL_IB_ROCE_VERSION_NUM", "1"}}), 2U);
  EXPECT_EQ(index({{"NCCL_IB_ADDR_RANGE", "10.1.0.0/16"}}), 5U);
}

TEST(NcclGid, TakesARangeOfIpv6ByItsLeadingBits) {
  const char* const near = "fd00:0000:0000:0001:0000:0000:0000:0005";
  const char* const far = "fd00:0000:0000:0002:0000:0000:0000:0005";
  const auto port = roce_port({entry(0, local, "IB/RoCE v1"), entry(1, local, "RoCE v2"), entry(2, first, "RoCE v2"),
                               entry(3, near, "RoCE v2"), entry(4, far, "RoCE v2")});
  const auto index = [&](const char* range) {
    return nccl_gid_index(
        amldist::testing::environment({{"NCCL_IB_ADDR_FAMILY", "AF_INET6"}, {"NCCL_IB_ADDR_RANGE", range}}), port);
  };
  EXPECT_EQ(index("fd00::/16"), 3U);
  EXPECT_EQ(index("fd00:0:0:1::/64"), 3U);
  EXPECT_EQ(index("fd00:0:0:2::/64"), 4U);
  EXPECT_EQ(index("fd00:0:0:2::/63"), 4U) << "3 differs from 2 in the last of 63 bits";
  EXPECT_EQ(index("fd00:0:0:2::5/128"), 4U);
  EXPECT_EQ(index("fd00:0:0:2::/129"), index("")) << "no range: NCCL ignores it";
}

TEST(NcclGid, OnInfiniBandTheFirstUnlessThereIsAFlid) {
  auto port = roce_port({entry(0, local, ""), entry(1, local, "")});
  port.link_layer.text = "InfiniBand";
  const auto nothing = amldist::testing::environment({{"NCCL_IB_GID_INDEX", "3"}});
  EXPECT_EQ(nccl_gid_index(nothing, port), 0U);
  port.gids[1].value = *Gid::parse("fe80:0000:0007:0000:0a00:27ff:fe00:0001");
  EXPECT_EQ(nccl_gid_index(nothing, port), 1U);
}

TEST(NcclParameter, IsReadAsStrtollDoes) {
  const auto read = [](const char* text) { return nccl_parameter(amldist::testing::environment({{"X", text}}), "X"); };
  EXPECT_EQ(read("3"), 3);
  EXPECT_EQ(read("0x10"), 16);
  EXPECT_EQ(read("-1"), -1);
  EXPECT_EQ(read("7 of 9"), 7);
  EXPECT_EQ(read("three"), std::nullopt);
  EXPECT_EQ(read(""), std::nullopt);
  EXPECT_EQ(read("99999999999999999999"), std::nullopt);
}

TEST(Selection, ExactForm) { EXPECT_EQ(exact_selection({{"mlx5_ib0", 1}, {"mlx5_ib1", 2}}), "=mlx5_ib0:1,mlx5_ib1:2"); }

}  // namespace
}  // namespace amldist::fabric::selection_test
