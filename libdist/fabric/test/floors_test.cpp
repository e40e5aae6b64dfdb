// Slow nodes, ports and ways, from fabricated measurements.
#include "fabric/between_nodes/floors.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <random>

#include "fabric/sku/sku_table.hpp"

namespace amldist::fabric {
namespace {

using Factor = std::function<double(const PairResult&)>;

std::vector<std::string> hosts_of(std::uint32_t nodes) {
  std::vector<std::string> out;
  out.reserve(nodes);
  for (std::uint32_t node = 0; node < nodes; ++node) out.push_back("node" + std::to_string(node + 1));
  return out;
}

/// What `check --bench` measures: rings at the powers of two, each over two rails, with noise of 1 %.
std::vector<PairResult> measure(std::uint32_t nodes, const Factor& factor, std::uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<double> noise(1, 0.01);
  std::vector<PairResult> out;
  for (std::uint32_t shift = 1; shift < nodes; shift *= 2) {
    for (std::uint32_t node = 0; node < nodes; ++node) {
      for (const char* const device : {"mlx5_0:1", "mlx5_1:1"}) {
        PairResult each{node, (node + shift) % nodes, device, "", 0};
        each.gbps = 390 * noise(random) * factor(each);
        each.latency_us = 2.5 * noise(random) / factor(each);
        out.push_back(each);
      }
    }
  }
  return out;
}

double healthy(const PairResult& /*pair*/) { return 1; }

TEST(Floors, TheMedianAndItsDeviationIgnoreAFewWildValues) {
  const MedianSpread usual = median_spread_of({10, 11, 9, 10, 12, 1000, 8});
  EXPECT_EQ(usual.count, 7U);
  EXPECT_DOUBLE_EQ(usual.median, 10);
  EXPECT_NEAR(usual.deviation, 1.4826, 1e-9);
  EXPECT_GT(usual.distance(1000), 600);
  EXPECT_NEAR(median_spread_of({5, 5, 5, 5}).deviation, 0.05, 1e-9) << "equal values leave room for noise";
  EXPECT_EQ(median_spread_of({}).median, 0);
  EXPECT_DOUBLE_EQ(median_spread_of({1, 3}).median, 2);
}

TEST(Floors, AHealthyStepIsNeverBlamed) {
  for (const std::uint32_t nodes : {2U, 3U, 4U, 8U, 33U, 256U}) {
    for (std::uint32_t seed = 0; seed < 5; ++seed) {
      const auto verdict = judge_speed(hosts_of(nodes), measure(nodes, healthy, seed), 350);
      EXPECT_EQ(verdict.bandwidth.verdict, Verdict::pass) << verdict.bandwidth.evidence;
      EXPECT_EQ(verdict.latency.verdict, Verdict::pass) << verdict.latency.evidence;
      EXPECT_TRUE(verdict.slow.empty());
    }
  }
}

TEST(Floors, OneSlowNodeOfNIsFoundInLogNRounds) {
  for (const std::uint32_t nodes : {4U, 5U, 16U, 100U, 1024U}) {
    for (const std::uint32_t sick : {0U, nodes / 2, nodes - 1}) {
      const auto pairs =
          measure(nodes, [sick](const PairResult& each) { return each.from == sick || each.to == sick ? 0.5 : 1; });
      const auto verdict = judge_speed(hosts_of(nodes), pairs, 0);
      ASSERT_EQ(verdict.slow, std::vector<SlowPart>({{SlowPart::Kind::node, sick, 0, ""}})) << nodes << " " << sick;
      EXPECT_EQ(exclusion(hosts_of(nodes), verdict.slow), "node" + std::to_string(sick + 1));
      EXPECT_EQ(verdict.bandwidth.verdict, Verdict::fail);
      EXPECT_EQ(verdict.bandwidth.evidence.find("slow: node" + std::to_string(sick + 1) + ";"), 0U);
      EXPECT_EQ(verdict.latency.verdict, Verdict::warn);
    }
  }
}

TEST(Floors, OneSlowPortIsToldFromItsNode) {
  const auto pairs = measure(16, [](const PairResult& each) {
    return (each.from == 6 || each.to == 6) && each.device == "mlx5_1:1" ? 0.25 : 1;
  });
  const auto verdict = judge_speed(hosts_of(16), pairs, 0);
  EXPECT_EQ(verdict.slow, std::vector<SlowPart>({{SlowPart::Kind::port, 6, 0, "mlx5_1:1"}}));
  EXPECT_EQ(exclusion(hosts_of(16), verdict.slow), "node7");
}

TEST(Floors, ANodeThatIsSlowInOneDirectionIsFoundAndItsPartnersAreNot) {
  for (const std::uint32_t nodes : {4U, 16U, 64U}) {
    const auto sends = measure(nodes, [](const PairResult& each) { return each.from == 2 ? 0.3 : 1; });
    EXPECT_EQ(exclusion(hosts_of(nodes), judge_speed(hosts_of(nodes), sends, 0).slow), "node3") << nodes;
    const auto receives = measure(nodes, [](const PairResult& each) { return each.to == 2 ? 0.3 : 1; });
    EXPECT_EQ(exclusion(hosts_of(nodes), judge_speed(hosts_of(nodes), receives, 0).slow), "node3") << nodes;
  }
  const auto port =
      measure(16, [](const PairResult& each) { return each.from == 6 && each.device == "mlx5_0:1" ? 0.3 : 1; });
  EXPECT_EQ(judge_speed(hosts_of(16), port, 0).slow, std::vector<SlowPart>({{SlowPart::Kind::port, 6, 0, "mlx5_0:1"}}));
}

TEST(Floors, AWayBetweenTwoHealthyNodesIsNamedAsThat) {
  const auto pairs = measure(16, [](const PairResult& each) {
    return each.from == 3 && each.to == 7 && each.device == "mlx5_0:1" ? 0.25 : 1;
  });
  const auto verdict = judge_speed(hosts_of(16), pairs, 0);
  EXPECT_EQ(verdict.slow, std::vector<SlowPart>({{SlowPart::Kind::way, 3, 7, "mlx5_0:1"}}));
  EXPECT_EQ(exclusion(hosts_of(16), verdict.slow), "node8");
}

TEST(Floors, ARailThatIsSlowOnMostNodesIsNamedAndNoNodeIs) {
  for (const std::uint32_t nodes : {8U, 64U, 1024U}) {
    const auto pairs = measure(nodes, [](const PairResult& each) { return each.device == "mlx5_1:1" ? 0.5 : 1; });
    const auto verdict = judge_speed(hosts_of(nodes), pairs, 300);
    EXPECT_EQ(verdict.slow, std::vector<SlowPart>({{SlowPart::Kind::rail, 0, 0, "mlx5_1:1"}})) << nodes;
    EXPECT_EQ(verdict.bandwidth.evidence.find("slow: rail mlx5_1:1;"), 0U) << verdict.bandwidth.evidence;
    EXPECT_EQ(exclusion(hosts_of(nodes), verdict.slow), "");
  }
}

TEST(Floors, ASlowRailAndASlowNodeAreBothNamed) {
  const auto pairs = measure(
      64, [](const PairResult& each) { return each.device == "mlx5_1:1" || each.from == 9 || each.to == 9 ? 0.5 : 1; });
  const auto verdict = judge_speed(hosts_of(64), pairs, 300);
  ASSERT_EQ(verdict.slow.size(), 2U);
  EXPECT_EQ(name_of(hosts_of(64), verdict.slow[0]), "rail mlx5_1:1");
  EXPECT_EQ(exclusion(hosts_of(64), verdict.slow), "node10");
}

TEST(Floors, WithoutAFloorTheOtherRailsTeachWhatIsUsual) {
  std::vector<PairResult> pairs;
  for (const PairResult& each : measure(16, [](const PairResult&) { return 1; })) {
    for (std::size_t rail = 0; rail < 4; ++rail) {
      pairs.push_back(each);
      pairs.back().device = "mlx5_" + std::to_string(rail) + ":1";
      if (rail == 2) pairs.back().gbps /= 2;
    }
  }
  const auto verdict = judge_speed(hosts_of(16), pairs, 0);
  EXPECT_EQ(verdict.slow, std::vector<SlowPart>({{SlowPart::Kind::rail, 0, 0, "mlx5_2:1"}}));
  EXPECT_EQ(verdict.bandwidth.verdict, Verdict::warn) << verdict.bandwidth.evidence;
}

TEST(Floors, TwoSlowNodesAreBothFound) {
  const auto pairs = measure(64, [](const PairResult& each) {
    return each.from == 9 || each.to == 9 || each.from == 40 || each.to == 40 ? 0.6 : 1;
  });
  EXPECT_EQ(exclusion(hosts_of(64), judge_speed(hosts_of(64), pairs, 0).slow), "node10,node41");
}

TEST(Floors, WhereAllAreSlowOnlyTheFloorKnows) {
  const auto pairs = measure(8, [](const PairResult&) { return 0.5; });
  EXPECT_EQ(judge_speed(hosts_of(8), pairs, 0).bandwidth.verdict, Verdict::pass);
  const auto verdict = judge_speed(hosts_of(8), pairs, 380);
  EXPECT_EQ(verdict.bandwidth.verdict, Verdict::fail);
  EXPECT_NE(verdict.bandwidth.evidence.find("the SKU's floor is 380"), std::string::npos) << verdict.bandwidth.evidence;
}

TEST(Floors, FewMeasurementsAreNotComparedAndFailedWritesAreNotSpeed) {
  std::vector<PairResult> two = {{0, 1, "mlx5_0:1", "", 390}, {1, 0, "mlx5_0:1", "", 100}};
  const auto verdict = judge_speed(hosts_of(2), two, 0);
  EXPECT_EQ(verdict.bandwidth.verdict, Verdict::pass);
  EXPECT_NE(verdict.bandwidth.evidence.find("too few"), std::string::npos);
  two[1].problem = "RDMA write: completion status 12";
  EXPECT_EQ(judge_speed(hosts_of(2), two, 200).bandwidth.verdict, Verdict::pass);
  EXPECT_EQ(judge_speed(hosts_of(2), {}, 200).bandwidth.verdict, Verdict::skip);
}

TEST(Floors, TheTableHasThoseOfAzure) {
  EXPECT_EQ(SkuTable::built_in().find("Standard_ND96isr_H100_v5")->bandwidth, 380U);
  EXPECT_EQ(SkuTable::built_in().find("Standard_HC44-16rs")->bandwidth, 95U);
  EXPECT_EQ(SkuTable::built_in().find("p5.48xlarge")->bandwidth, std::nullopt);
}

TEST(Floors, AMeasurementTravelsBetweenNodes) {
  PairResult pair{3, 4, "mlx5_0:1", "", 391.5};
  pair.latency_us = 2.25;
  const auto back = pairs_from_lines(to_line(pair));
  ASSERT_TRUE(back);
  EXPECT_DOUBLE_EQ(back->front().gbps, 391.5);
  EXPECT_DOUBLE_EQ(back->front().latency_us, 2.25);
}

/// What GPUs write to each other: host memory is as fast everywhere.
std::vector<PairResult> measure_gpus(std::uint32_t nodes, const Factor& factor) {
  auto out = measure(nodes, healthy);
  const auto gpus = measure(nodes, factor, 2);
  for (std::size_t i = 0; i < out.size(); ++i) out[i].gpu.gbps = gpus[i].gbps;
  return out;
}

TEST(Floors, ANodeThatIsSlowOnlyForItsGpusIsFound) {
  const auto pairs =
      measure_gpus(16, [](const PairResult& each) { return each.from == 5 || each.to == 5 ? 0.4 : 1.0; });
  EXPECT_TRUE(judge_speed(hosts_of(16), pairs, 350).slow.empty());
  const GpudirectCheck gpus = judge_gpudirect(hosts_of(16), pairs, 350);
  EXPECT_EQ(gpus.check.verdict, Verdict::fail);
  EXPECT_NE(gpus.check.evidence.find("GPU to GPU: slow: node6;"), std::string::npos) << gpus.check.evidence;
  ASSERT_EQ(gpus.slow.size(), 1U);
  EXPECT_EQ(name_of(hosts_of(16), gpus.slow.front()), "node6");
}

TEST(Floors, APortThatIsSlowOnlyTowardsItsGpuIsFound) {
  const auto pairs =
      measure_gpus(1024, [](const PairResult& each) { return each.to == 77 && each.device == "mlx5_1:1" ? 0.3 : 1.0; });
  const GpudirectCheck gpus = judge_gpudirect(hosts_of(1024), pairs, 350);
  ASSERT_EQ(gpus.slow.size(), 1U) << gpus.check.evidence;
  EXPECT_EQ(name_of(hosts_of(1024), gpus.slow.front()), "node78 mlx5_1:1");
  EXPECT_EQ(exclusion(hosts_of(1024), gpus.slow), "node78");
}

TEST(Floors, ANodeWithoutGpusIsWrittenToInItsMemoryAndThatIsSaid) {
  auto pairs = measure_gpus(4, healthy);
  for (PairResult& each : pairs) {
    if (each.to == 2) each.gpu.reason = "the other node has no memory of a GPU there";
  }
  const GpudirectCheck gpus = judge_gpudirect(hosts_of(4), pairs, 350);
  EXPECT_EQ(gpus.check.verdict, Verdict::pass);
  EXPECT_NE(gpus.check.evidence.find("node2 -> node3"), std::string::npos) << gpus.check.evidence;
  EXPECT_NE(gpus.check.evidence.find("to host memory"), std::string::npos) << gpus.check.evidence;
}

}  // namespace
}  // namespace amldist::fabric
