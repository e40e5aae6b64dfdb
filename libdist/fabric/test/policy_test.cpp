// Whose word counts about the fabric, and what the tasks are told.
#include <gtest/gtest.h>

#include "fabric/node_part.hpp"
#include "launch/frameworks/task_environment.hpp"
#include "launch/rendezvous/stamp.hpp"
#include "launch/site/rdma_policy.hpp"
#include "support.hpp"

namespace amldist {
namespace {

using amldist::testing::applied;
using amldist::testing::environment;
using amldist::testing::Variables;

launch::SitePolicy site(std::vector<std::string_view> arguments) {
  launch::SitePolicy policy = launch::SitePolicy::defaults();
  EXPECT_TRUE(apply_arguments(policy, arguments).empty());
  return policy;
}

launch::Spec spec_of(std::string_view text) { return *launch::parse_spec(text); }

/// Four nodes; "ib" on the first three, "h100" on the second, the name of a SKU on the last.
const launch::NodeFeatures some_features = *launch::NodeFeatures::parse("Standard_HC44rs:3+h100:1+ib:0-2");

launch::RdmaPolicy policy_of(const launch::SitePolicy& policy, std::string_view option, std::string_view partition,
                             const launch::NodeFeatures& features = {}) {
  return choose_rdma(policy, spec_of(option), partition, features).policy;
}

TEST(RdmaPolicyOf, TheKeyThenThePartitionThenTheSite) {
  const launch::SitePolicy policy = site({"rdma=prefer", "rdma.gpu=require", "rdma.cpu=off"});
  EXPECT_EQ(policy_of(policy, "pytorch", "gpu"), launch::RdmaPolicy::require);
  EXPECT_EQ(policy_of(policy, "pytorch", "cpu"), launch::RdmaPolicy::off);
  EXPECT_EQ(policy_of(policy, "pytorch", "other"), launch::RdmaPolicy::prefer);
  EXPECT_EQ(policy_of(policy, "pytorch,rdma=off", "gpu"), launch::RdmaPolicy::off);
  EXPECT_EQ(policy_of(launch::SitePolicy::defaults(), "pytorch", "gpu"), launch::RdmaPolicy::off);
}

TEST(RdmaPolicyOf, AFeatureStandsBetweenPartitionAndSite) {
  const launch::SitePolicy policy = site({"rdma=prefer", "rdma.gpu=off", "rdma.feature.ib=require"});
  EXPECT_EQ(policy_of(policy, "pytorch", "other", some_features), launch::RdmaPolicy::require);
  EXPECT_EQ(policy_of(policy, "pytorch", "other"), launch::RdmaPolicy::prefer) << "no node has it";
  EXPECT_EQ(policy_of(policy, "pytorch", "gpu", some_features), launch::RdmaPolicy::off) << "the partition is named";
  EXPECT_EQ(policy_of(policy, "pytorch,rdma=off", "other", some_features), launch::RdmaPolicy::off) << "the user's key";
}

TEST(RdmaPolicyOf, OfSeveralFeaturesTheStrictestCountsOnAllNodes) {
  EXPECT_EQ(policy_of(site({"rdma.feature.ib=prefer", "rdma.feature.h100=require"}), "mpi", "", some_features),
            launch::RdmaPolicy::require);
  EXPECT_EQ(policy_of(site({"rdma.feature.ib=off", "rdma.feature.h100=prefer"}), "mpi", "", some_features),
            launch::RdmaPolicy::prefer);
  EXPECT_EQ(policy_of(site({"rdma=require", "rdma.feature.ib=off"}), "mpi", "", some_features), launch::RdmaPolicy::off)
      << "a feature may also take the site's wish back";
}

TEST(RdmaPolicyOf, ASkuStandsBehindTheFeaturesWhetherToldOrGuessed) {
  const launch::SitePolicy told = site({"rdma_sku.gpu=ND96isr_H100_v5", "rdma.sku.standard_nd96isr_h100_v5=require"});
  EXPECT_EQ(policy_of(told, "pytorch", "gpu"), launch::RdmaPolicy::require) << "case and Standard_ do not matter";
  EXPECT_EQ(policy_of(told, "pytorch", "cpu"), launch::RdmaPolicy::off);
  const launch::SitePolicy by_feature =
      site({"rdma_sku.feature.h100=ND96isr_H100_v5", "rdma.sku.ND96isr_H100_v5=prefer"});
  EXPECT_EQ(policy_of(by_feature, "pytorch", "", some_features), launch::RdmaPolicy::prefer);
  const launch::SitePolicy guessed = site({"rdma.sku.Standard_HC44rs=require"});
  EXPECT_EQ(policy_of(guessed, "pytorch", "", some_features), launch::RdmaPolicy::require);
  const launch::SitePolicy explicit_first = site({"rdma_sku=HB60rs", "rdma.sku.Standard_HC44rs=require"});
  EXPECT_EQ(policy_of(explicit_first, "pytorch", "", some_features), launch::RdmaPolicy::off) << "told, so not guessed";
  const launch::SitePolicy feature_first = site({"rdma.feature.ib=off", "rdma.sku.Standard_HC44rs=require"});
  EXPECT_EQ(policy_of(feature_first, "pytorch", "", some_features), launch::RdmaPolicy::off);
}

TEST(RdmaPolicyOf, SaysWhoChose) {
  const launch::SitePolicy policy = site({"rdma.gpu=require", "rdma.feature.ib=require", "rdma.sku.HC44rs=require"});
  const auto source = [&](std::string_view option, std::string_view partition, const launch::NodeFeatures& features) {
    return choose_rdma(policy, spec_of(option), partition, features).source;
  };
  EXPECT_EQ(source("mpi,rdma=off", "gpu", some_features), "--aml-dist");
  EXPECT_EQ(source("mpi", "gpu", some_features), "rdma.gpu=");
  EXPECT_EQ(source("mpi", "cpu", some_features), "rdma.feature.ib=");
  EXPECT_EQ(source("mpi", "cpu", *launch::NodeFeatures::parse("HC44rs:0")), "rdma.sku.HC44rs=");
  EXPECT_EQ(source("mpi", "cpu", {}), "rdma=");
}

TEST(RdmaPolicyOf, OnlyLoweringARequirementIsTold) {
  const launch::SitePolicy policy = site({"rdma.gpu=require", "rdma.feature.ib=require"});
  for (const char* const option : {"pytorch,rdma=off", "pytorch,rdma=prefer"}) {
    const auto line = lowered_requirement(policy, spec_of(option), "gpu", {});
    ASSERT_TRUE(line) << option;
    amldist::testing::expect_sentence(*line);
    EXPECT_FALSE(lowered_requirement(policy, spec_of(option), "cpu", {})) << option;
    const auto by_feature = lowered_requirement(policy, spec_of(option), "cpu", some_features);
    ASSERT_TRUE(by_feature) << option;
    EXPECT_NE(by_feature->find("rdma.feature.ib=require"), std::string::npos) << *by_feature;
  }
  EXPECT_FALSE(lowered_requirement(policy, spec_of("pytorch"), "gpu", {}));
  EXPECT_FALSE(lowered_requirement(policy, spec_of("pytorch,rdma=require"), "gpu", {}));
}

TEST(RdmaPairs, AreARingUnderRequireUnlessSomebodySaysOtherwise) {
  const auto pairs_of = [](const launch::SitePolicy& policy, std::string_view option, launch::RdmaPolicy rdma) {
    return choose_pairs(policy, spec_of(option), "gpu", rdma);
  };
  EXPECT_EQ(pairs_of(site({}), "pytorch", launch::RdmaPolicy::require), launch::RdmaPairs::ring);
  EXPECT_EQ(pairs_of(site({}), "pytorch", launch::RdmaPolicy::prefer), launch::RdmaPairs::off);
  EXPECT_EQ(pairs_of(site({"rdma_pairs=log"}), "pytorch", launch::RdmaPolicy::prefer), launch::RdmaPairs::log);
  EXPECT_EQ(pairs_of(site({"rdma_pairs=log", "rdma_pairs.gpu=all"}), "pytorch", launch::RdmaPolicy::require),
            launch::RdmaPairs::all);
  EXPECT_EQ(pairs_of(site({"rdma_pairs=log"}), "pytorch,rdma_pairs=off", launch::RdmaPolicy::require),
            launch::RdmaPairs::off);
  EXPECT_EQ(pairs_of(site({"rdma_pairs=all"}), "pytorch,rdma_pairs=ring", launch::RdmaPolicy::off),
            launch::RdmaPairs::off);
  EXPECT_FALSE(site({"rdma=require", "rdma_pairs=off"}).rdma == launch::RdmaPolicy::off);
}

TEST(Health, IsTheUsersThePartitionsOrTheSites) {
  const launch::SitePolicy policy = site({"health=prefer", "health.gpu=require"});
  EXPECT_EQ(choose_health(policy, spec_of("pytorch"), "gpu"), launch::RdmaPolicy::require);
  EXPECT_EQ(choose_health(policy, spec_of("pytorch"), "cpu"), launch::RdmaPolicy::prefer);
  EXPECT_EQ(choose_health(policy, spec_of("pytorch,health=off"), "gpu"), launch::RdmaPolicy::off);
  EXPECT_EQ(choose_health(site({}), spec_of("pytorch"), "gpu"), launch::RdmaPolicy::off);
}

TEST(Lowering, PairsAndHealthAreToldToo) {
  const launch::SitePolicy policy = site({"rdma=require", "health=require"});
  const auto said = [](const launch::SitePolicy& of, std::string_view option) {
    return lowered_requirement(of, spec_of(option), "gpu", {}).value_or("");
  };
  EXPECT_NE(said(policy, "pytorch,rdma_pairs=off").find("rdma_pairs=off lowers"), std::string::npos);
  EXPECT_NE(said(policy, "pytorch,health=prefer").find("health=prefer lowers"), std::string::npos);
  EXPECT_EQ(said(policy, "pytorch,health=require,rdma_pairs=all"), "");
  EXPECT_EQ(said(site({"rdma=require", "rdma_pairs=off"}), "pytorch,rdma_pairs=off"), "");
}

TEST(RdmaPolicyOf, NobodyIsAskedForFeaturesWithoutARuleForThem) {
  EXPECT_FALSE(asks_for_features(site({"rdma=require", "rdma.gpu=off", "rdma_sku=HC44rs"}), spec_of("mpi")));
  EXPECT_TRUE(asks_for_features(site({"rdma.feature.ib=require"}), spec_of("mpi")));
  EXPECT_TRUE(asks_for_features(site({"rdma.feature.ib=require"}), spec_of("mpi,rdma=off"))) << "to tell of lowering";
  EXPECT_TRUE(asks_for_features(site({"rdma.sku.HC44rs=require"}), spec_of("mpi")));
  EXPECT_FALSE(asks_for_features(site({"rdma_sku.feature.a=HC44rs"}), spec_of("mpi,rdma=off")));
}

TEST(RdmaPolicyOf, FeaturesAreKeptByTheNamesOfTheRules) {
  const launch::SitePolicy policy =
      site({"rdma.feature.ib=require", "rdma_sku.feature.a=HC44rs", "rdma.sku.HB60rs=off"});
  using Names = std::vector<std::string>;
  EXPECT_EQ(features_with_rules(policy, "gpu,ib,a,STANDARD_hb60RS"), (Names{"HB60rs", "a", "ib"}));
  EXPECT_EQ(features_with_rules(policy, "IB,ibx,xa"), Names{}) << "Slurm's features differ by case";
  EXPECT_EQ(features_with_rules(policy, ""), Names{});
}

TEST(NodeFeatures, AreReadBackAsWritten) {
  launch::NodeFeatures features;
  for (const std::uint32_t node : {0U, 1U, 2U, 7U}) features.add("ib", node);
  features.add("h100", 2);
  EXPECT_EQ(features.to_string(), "h100:2+ib:0-2,7");
  EXPECT_EQ(*launch::NodeFeatures::parse(features.to_string()), features);
  EXPECT_TRUE(features.on("ib", 1) && features.on("ib", 7) && features.on_any("h100"));
  EXPECT_FALSE(features.on("ib", 3) || features.on("h100", 1) || features.on_any("gpu"));
}

TEST(NodeFeatures, RefuseWhatNobodyWrites) {
  for (const std::string_view bad : {"", "ib", "ib:", ":0", "ib:0,", "ib:2-1", "ib:1-1", "ib:0,1", "ib:3,1", "ib:-1",
                                     "ib:0-9999999", "ib:0+ib:1", "ib:0+a:1", "a b:0", "ib:0x1"}) {
    EXPECT_FALSE(launch::NodeFeatures::parse(bad)) << bad;
  }
}

TEST(RdmaSku, ThePartitionsThenTheFeaturesThenTheSitesThenAGuess) {
  const launch::SitePolicy policy =
      site({"rdma_sku=HC44rs", "rdma_sku.gpu=ND96isr_H100_v5", "rdma_sku.feature.ib=HB60rs",
            "rdma.sku.Standard_HC44rs=require", "rdma_helper=/opt/aml-dist"});
  EXPECT_EQ(rdma_sku(policy, "gpu", some_features, 0), "ND96isr_H100_v5");
  EXPECT_EQ(rdma_sku(policy, "cpu", some_features, 0), "HB60rs") << "this node's feature";
  EXPECT_EQ(rdma_sku(policy, "cpu", some_features, 3), "HC44rs") << "not another node's";
  EXPECT_EQ(policy.rdma_helper, "/opt/aml-dist");
  const launch::SitePolicy guessing = site({"rdma.sku.Standard_HC44rs=require"});
  EXPECT_EQ(rdma_sku(guessing, "cpu", some_features, 3), "Standard_HC44rs");
  EXPECT_EQ(rdma_sku(guessing, "cpu", some_features, 0), "");
}

TEST(RdmaSku, MalformedArgumentsAreNamedAndSkipped) {
  for (const std::string_view bad :
       {"rdma_sku=", "rdma_sku.=HC44rs", "rdma_sku=a b", "rdma_helper=relative", "rdma_sku.gpu",
        "rdma_sku.feature.=HC44rs", "rdma_sku.feature.a+b=HC44rs", "rdma.feature.=require", "rdma.feature.ib=on",
        "rdma.feature.a b=off", "rdma.sku.=off", "rdma.sku.HC44rs"}) {
    launch::SitePolicy policy = launch::SitePolicy::defaults();
    EXPECT_EQ(apply_arguments(policy, {&bad, 1}).size(), 1U) << bad;
    EXPECT_TRUE(policy.rdma_sku.empty() && policy.rdma_sku_of_partition.empty() && policy.rdma_of_feature.empty() &&
                policy.rdma_sku_of_feature.empty() && policy.rdma_of_sku.empty() && policy.rdma_helper.empty())
        << bad;
  }
}

launch::StepPlan plan_with(std::vector<std::pair<std::string, std::string>> settings) {
  launch::Placement placement{Hostlist::parse("node[1-2]").value(),
                              launch::TaskMap::parse("(vector,(0,2,1))", 2, 2).value(), launch::Provenance::given,
                              "the test"};
  launch::StepPlan plan{spec_of("pytorch"), std::move(placement), {}, "12.0"};
  plan.rendezvous.address = "10.0.0.1";
  plan.rendezvous.port = 20001;
  plan.fabric_settings = std::move(settings);
  return plan;
}

Variables task(const launch::StepPlan& plan, Variables inherited = {}) {
  const auto patch = task_environment(plan, 0, environment(inherited));
  EXPECT_TRUE(patch);
  return applied(*patch, std::move(inherited));
}

TEST(FabricSettings, AreSetWhereTheUserHasSetNothing) {
  const launch::StepPlan plan = plan_with({{"NCCL_IB_HCA", "=mlx5_0:1"}, {"NCCL_IB_GID_INDEX", "3"}});
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

TEST(UnknownOf, IsWarnOrFailAndNothingElse) {
  EXPECT_FALSE(launch::SitePolicy::defaults().unknown_fails);
  EXPECT_TRUE(site({"unknown=fail"}).unknown_fails);
  EXPECT_FALSE(site({"unknown=fail", "unknown=warn"}).unknown_fails);
  launch::SitePolicy policy = launch::SitePolicy::defaults();
  constexpr std::string_view wrong = "unknown=pass";
  EXPECT_EQ(apply_arguments(policy, {&wrong, 1}).size(), 1U);
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
  const auto part = fabric::verify_node_apart(launch::RdmaPolicy::require, "no-such-size", false, environment({}),
                                              std::chrono::seconds(20));
  ASSERT_FALSE(part.checks.empty());
  EXPECT_FALSE(part.is_good());
  EXPECT_NE(part.checks.front().evidence.find("no-such-size"), std::string::npos);
}

}  // namespace
}  // namespace amldist
