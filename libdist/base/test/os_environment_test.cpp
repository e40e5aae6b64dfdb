#include "base/os/environment.hpp"

#include <algorithm>
#include <cstdlib>

#include "support.hpp"

namespace amldist {
namespace {

class OwnEnvironment : public ::testing::Test {
 protected:
  void SetUp() override {
    ::setenv("AMLDIST_TEST_SET", "a=b", 1);
    ::setenv("AMLDIST_TEST_EMPTY", "", 1);
    ::unsetenv("AMLDIST_TEST_UNSET");
  }
  void TearDown() override {
    ::unsetenv("AMLDIST_TEST_SET");
    ::unsetenv("AMLDIST_TEST_EMPTY");
  }
};

TEST_F(OwnEnvironment, TellsAnEmptyVariableFromNone) {
  EXPECT_EQ(own_variable("AMLDIST_TEST_SET"), "a=b");
  EXPECT_EQ(own_variable("AMLDIST_TEST_EMPTY"), "");
  EXPECT_EQ(own_variable("AMLDIST_TEST_UNSET"), std::nullopt);
  EXPECT_EQ(own_variable(std::string_view("AMLDIST_TEST_SETTINGS").substr(0, 16)), "a=b");
}

TEST_F(OwnEnvironment, IsReadAtEachCall) {
  const EnvironmentReader reader = process_environment();
  EXPECT_EQ(reader("AMLDIST_TEST_SET"), "a=b");
  ::setenv("AMLDIST_TEST_SET", "c", 1);
  EXPECT_EQ(reader("AMLDIST_TEST_SET"), "c");
}

TEST_F(OwnEnvironment, ListsEveryVariable) {
  const auto all = all_own_variables();
  EXPECT_EQ(std::ranges::count(all, "AMLDIST_TEST_SET=a=b"), 1);
  EXPECT_EQ(std::ranges::count(all, "AMLDIST_TEST_EMPTY="), 1);
}

}  // namespace
}  // namespace amldist
