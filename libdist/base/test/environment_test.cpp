#include "base/text/environment.hpp"

#include "support.hpp"

namespace amldist {
namespace {

TEST(EnvironmentPatch, TheLastChangeWins) {
  EnvironmentPatch patch;
  patch.set("A", "1");
  patch.set("B", 2U);
  patch.unset("A");
  patch.unset("C");
  patch.set("C", "3");
  EXPECT_EQ(patch.value_of("A"), std::nullopt);
  EXPECT_TRUE(patch.mentions("A"));
  EXPECT_FALSE(patch.mentions("D"));
  EXPECT_EQ(testing::applied(patch, {{"A", "x"}, {"Z", "z"}}),
            (testing::Variables{{"B", "2"}, {"C", "3"}, {"Z", "z"}}));
}

}  // namespace
}  // namespace amldist
