#include "spank/task/processor_use.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ctime>

namespace amldist::spank {
namespace {

using std::chrono::milliseconds;

TEST(ProcessorUse, IsToldInSecondsAndPercent) {
  EXPECT_EQ(processor_line("node1", milliseconds(12340), 4, milliseconds(10000)),
            "processors of node1: 12.3 s used of 40.0 s held (30 %)");
  EXPECT_EQ(processor_line("node1", milliseconds(5), 0, milliseconds(0)),
            "processors of node1: 0.0 s used of 0.0 s held (500 %)");
}

TEST(ProcessorUse, CountsChildrenThatHaveBeenWaitedFor) {
  constexpr std::clock_t spent = CLOCKS_PER_SEC / 5;
  const auto before = time_of_children();
  const pid_t child = ::fork();
  if (child == 0) {
    while (std::clock() < spent) {
    }
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_GE(time_of_children() - before, milliseconds(150));
}

}  // namespace
}  // namespace amldist::spank
