#include "base/os/process_tree.hpp"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>

#include "support.hpp"

namespace amldist {
namespace {

TEST(ProcessTree, AProcessWithoutChildrenHasNone) { EXPECT_TRUE(descendants().empty()); }

/// The command of a process may look like anything, also like the fields behind it.
TEST(ProcessTree, FindsChildrenAndTheirChildrenWhateverTheyAreCalled) {
  std::array<int, 2> ready{};
  ASSERT_EQ(::pipe(ready.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_NAME, ") S 1 (");
    const pid_t own_child = ::fork();
    const bool told = own_child == 0 || ::write(ready[1], &own_child, sizeof own_child) == sizeof own_child;
    if (!told) ::_exit(1);
    for (;;) ::pause();
  }
  pid_t grandchild = 0;
  ASSERT_EQ(::read(ready[0], &grandchild, sizeof grandchild), static_cast<ssize_t>(sizeof grandchild));
  const auto family = descendants();
  EXPECT_EQ(family, (std::vector<pid_t>{child, grandchild}));
  ::kill(grandchild, SIGKILL);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST(ProcessTree, AProgramsNameCannotForgeItsParent) {
  const auto parent = [](std::string_view stat) {
    const auto process = parse_process_stat(stat);
    return process ? std::optional(process->parent) : std::nullopt;
  };
  EXPECT_EQ(parent("12 (sh) S 1 12 12 0 -1\n"), 1);
  EXPECT_EQ(parent("12 (a) S 7 () S 815 12 12\n"), 815);
  EXPECT_EQ(parent("12 (sh) S"), std::nullopt);
  EXPECT_EQ(parent(""), std::nullopt);
}

TEST(ProcessTree, AFamilyHasItsRootFirstAndNobodyElse) {
  const ProcessTable all(
      {{9, 7, 'S', 1}, {7, 5, 'R', 2}, {5, 1, 'S', 3}, {6, 5, 'D', 4}, {1, 0, 'S', 5}, {8, 1, 'S', 6}});
  std::vector<pid_t> ids;
  for (const ProcessStat& each : all.family_of(5)) ids.push_back(each.id);
  EXPECT_EQ(ids, (std::vector<pid_t>{5, 7, 6, 9}));
  EXPECT_TRUE(all.family_of(4).empty());
  EXPECT_EQ(all.find(6)->state, 'D');
  EXPECT_EQ(all.find(4), nullptr);
  const ProcessTable circle({{2, 3, 'S', 0}, {3, 2, 'S', 0}});
  EXPECT_LE(circle.family_of(2).size(), 3U) << "numbers that were used again";
}

}  // namespace
}  // namespace amldist
