#include "base/text/tasks_per_node.hpp"

#include "support.hpp"

namespace amldist {
namespace {

TEST(TasksPerNode, ReadsSlurmsGrammar) {
  struct Case {
    const char* text;
    std::vector<TasksRun> runs;
  };
  for (const Case& c : std::vector<Case>{
           {"4", {{1, 4}}},
           {"2(x3)", {{3, 2}}},
           {"2(x3),1", {{3, 2}, {1, 1}}},
           {"5,1(x3)", {{1, 5}, {3, 1}}},
           {"2,2", {{2, 2}}},
           {"1(x10240)", {{10240, 1}}},
       }) {
    const auto runs = parse_tasks_per_node(c.text);
    ASSERT_TRUE(runs) << c.text;
    EXPECT_EQ(*runs, c.runs) << c.text;
  }
}

TEST(TasksPerNode, RefusesEverythingElse) {
  for (const char* const bad : {"", "0", "a", "2(x0)", "2(x)", "2(3)", "2(x3", "2x3", "2,", ",2", "-1", "2(x3)4",
                                "2 (x3)", "99999999999", "67108864(x2)", "1(x99999999)", "1(x1048576),1"}) {
    const auto runs = parse_tasks_per_node(bad);
    ASSERT_FALSE(runs) << bad;
    testing::expect_sentence(runs.error().message);
  }
}

}  // namespace
}  // namespace amldist
