#include "fabric/facts/settings.hpp"

#include <gtest/gtest.h>

#include "support.hpp"

namespace amldist::fabric {
namespace {

using testing::environment;

TEST(WorldPolicy, IsWhatTheVariablesSay) {
  const auto unset = WorldPolicy::read(environment({}));
  ASSERT_TRUE(unset);
  EXPECT_EQ(unset->rdma, launch::RdmaPolicy::off);
  EXPECT_EQ(unset->sku, "");
  const auto set =
      WorldPolicy::read(environment({{"AMLDIST_RDMA", "prefer"}, {"AMLDIST_RDMA_SKU", "ND96isr_H100_v5"}}));
  ASSERT_TRUE(set);
  EXPECT_EQ(set->rdma, launch::RdmaPolicy::prefer);
  EXPECT_EQ(set->sku, "ND96isr_H100_v5");
}

TEST(WorldPolicy, RefusesAnotherWord) {
  const auto policy = WorldPolicy::read(environment({{"AMLDIST_RDMA", "on"}}));
  ASSERT_FALSE(policy);
  EXPECT_EQ(policy.error().message, "AMLDIST_RDMA='on': use require, prefer or off");
}

}  // namespace
}  // namespace amldist::fabric
