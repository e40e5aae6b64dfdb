// Whose word counts about the fabric, and what the tasks are told.
#include <gtest/gtest.h>

#include "core/site_policy.hpp"
#include "fabric/node_part.hpp"
#include "frameworks/task_environment.hpp"
#include "rendezvous/stamp.hpp"
#include "unit/support.hpp"

namespace amldist {
namespace {

using amldist::testing::applied;
using amldist::testing::environment;
using amldist::testing::Variables;

SitePolicy site(std::vector<std::string_view> arguments) {
  SitePolicy policy = SitePolicy::defaults();
  EXPECT_TRUE(apply_arguments(policy, arguments).empty());
  return policy;
}

Spec spec_of(std::string_view text) { return *parse_spec(text); }

TEST(RdmaPolicyOf, TheKeyThenThePartitionThenTheSite) {
  const SitePolicy policy = site({"rdma=prefer", "rdma.gpu=require", "rdma.cpu=off"});
  EXPECT_EQ(rdma_policy(policy, spec_of("pytorch"), "gpu"), RdmaPolicy::require);
  EXPECT_EQ(rdma_policy(policy, spec_of("pytorch"), "cpu"), RdmaPolicy::off);
  EXPECT_EQ(rdma_policy(policy, spec_of("pytorch"), "other"), RdmaPolicy::prefer);
  EXPECT_EQ(rdma_policy(policy, spec_of("pytorch,rdma=off"), "gpu"), RdmaPolicy::off);
  EXPECT_EQ(rdma_policy(SitePolicy::defaults(), spec_of("pytorch"), "gpu"), RdmaPolicy::off);
}

TEST(RdmaPolicyOf, OnlyLoweringARequirementIsTold) {
  const SitePolicy policy = site({"rdma.gpu=require"});
  for (const char* const option : {"pytorch,rdma=off", "pytorch,rdma=prefer"}) {
    const auto line = lowered_requirement(policy, spec_of(option), "gpu");
    ASSERT_TRUE(line) << option;
    amldist::testing::expect_sentence(*line);
    EXPECT_FALSE(lowered_requirement(policy, spec_of(option), "cpu")) << option;
  }
  EXPECT_FALSE(lowered_requirement(policy, spec_of("pytorch"), "gpu"));
  EXPECT_FALSE(lowered_requirement(policy, spec_of("pytorch,rdma=require"), "gpu"));
}

TEST(RdmaSku, ThePartitionsBeforeTheSites) {
  const SitePolicy policy = site({"rdma_sku=HC44rs", "rdma_sku.gpu=ND96isr_H100_v5", "rdma_helper=/opt/aml-dist"});
  EXPECT_EQ(rdma_sku(policy, "gpu"), "ND96isr_H100_v5");
  EXPECT_EQ(rdma_sku(policy, "cpu"), "HC44rs");
  EXPECT_EQ(policy.rdma_helper, "/opt/aml-dist");
}

TEST(RdmaSku, MalformedArgumentsAreNamedAndSkipped) {
  for (const std::string_view bad :
       {"rdma_sku=", "rdma_sku.=HC44rs", "rdma_sku=a b", "rdma_helper=relative", "rdma_sku.gpu"}) {
    SitePolicy policy = SitePolicy::defaults();
    EXPECT_EQ(apply_arguments(policy, {&bad, 1}).size(), 1U) << bad;
    EXPECT_TRUE(policy.rdma_sku.empty() && policy.rdma_sku_of_partition.empty() && policy.rdma_helper.empty()) << bad;
  }
}

StepPlan plan_with(std::vector<std::pair<std::string, std::string>> settings) {
  Placement placement{Hostlist::parse("node[1-2]").value(), TaskMap::parse("(vector,(0,2,1))", 2, 2).value(),
                      Provenance::given, "the test"};
  StepPlan plan{spec_of("pytorch"), std::move(placement), {}, "12.0"};
  plan.rendezvous.address = "10.0.0.1";
  plan.rendezvous.port = 20001;
  plan.fabric_settings = std::move(settings);
  return plan;
}

Variables task(const StepPlan& plan, Variables inherited = {}) {
  const auto patch = task_environment(plan, 0, environment(inherited));
  EXPECT_TRUE(patch);
  return applied(*patch, std::move(inherited));
}

TEST(FabricSettings, AreSetWhereTheUserHasSetNothing) {
  const StepPlan plan = plan_with({{"NCCL_IB_HCA", "=mlx5_0:1"}, {"NCCL_IB_GID_INDEX", "3"}});
  const Variables fresh = task(plan);
  EXPECT_EQ(fresh.at("NCCL_IB_HCA"), "=mlx5_0:1");
  EXPECT_EQ(fresh.at("NCCL_IB_GID_INDEX"), "3");
  const Variables own = task(plan, {{"NCCL_IB_HCA", "mlx5_1"}});
  EXPECT_EQ(own.at("NCCL_IB_HCA"), "mlx5_1");
  EXPECT_EQ(own.at("NCCL_IB_GID_INDEX"), "3");
}

TEST(FabricSettings, WhatAnOuterStepLeftBehindGoesAndIsSetAnew) {
  Variables outer = task(plan_with({{"NCCL_IB_HCA", "=mlx5_0:1"}, {"NCCL_IB_DISABLE", "1"}}));
  EXPECT_EQ(task(plan_with({}), outer).count("NCCL_IB_HCA"), 0U);
  EXPECT_EQ(task(plan_with({}), outer).count("NCCL_IB_DISABLE"), 0U);
  EXPECT_EQ(task(plan_with({{"NCCL_IB_HCA", "=mlx5_9:1"}}), outer).at("NCCL_IB_HCA"), "=mlx5_9:1");
  outer["NCCL_IB_HCA"] = "mlx5_1";  // the user's own word since
  EXPECT_EQ(task(plan_with({{"NCCL_IB_HCA", "=mlx5_9:1"}}), outer).at("NCCL_IB_HCA"), "mlx5_1");
}

TEST(FabricSettings, WithoutAPolicyNothingIsAdded) {
  const Variables variables = task(plan_with({}));
  for (const char* const name : {"NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_IB_DISABLE", "UCX_TLS"}) {
    EXPECT_EQ(variables.count(name), 0U) << name;
  }
}

TEST(FabricSettings, SocketsAreForNcclAndUcxAlike) {
  const auto settings = fabric::socket_settings();
  ASSERT_EQ(settings.size(), 2U);
  EXPECT_EQ(settings[0], std::pair(std::string("NCCL_IB_DISABLE"), std::string("1")));
  EXPECT_EQ(settings[1].first, "UCX_TLS");
  EXPECT_TRUE(settings[1].second.starts_with("tcp,sm,self"));
}

TEST(NodePart, NothingVerifiedIsNotGood) {
  EXPECT_FALSE(fabric::NodePart().is_good());
  fabric::NodePart part;
  part.verified = true;
  EXPECT_TRUE(part.is_good());
  part.checks.push_back({"ib.state", fabric::Verdict::warn, "", ""});
  EXPECT_TRUE(part.is_good());
  part.checks.push_back({"ib.lid", fabric::Verdict::fail, "", ""});
  EXPECT_FALSE(part.is_good());
}

TEST(NodePart, AWrongSkuIsAFailureWithItsName) {
  const auto part =
      fabric::verify_node_apart(RdmaPolicy::require, "no-such-size", environment({}), std::chrono::seconds(20));
  ASSERT_FALSE(part.checks.empty());
  EXPECT_FALSE(part.is_good());
  EXPECT_NE(part.checks.front().evidence.find("no-such-size"), std::string::npos);
}

}  // namespace
}  // namespace amldist
