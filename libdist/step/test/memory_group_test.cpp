#include "step/cause/memory_group.hpp"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "scratch.hpp"
#include "support.hpp"

namespace amldist::step::memory_group_test {
namespace {

constexpr std::string_view version_1 =
    "9:name=systemd:/\n5:devices:/slurm/uid_0/job_1/step_0/task_0\n4:cpu,memory:/slurm/uid_0/job_1/step_0/task_0\n0::/"
    "\n";
constexpr std::string_view version_2 = "0::/system.slice/slurmstepd.scope/job_1/step_0/user/task_0\n";

/// A recorded tree of cgroups.
struct Tree {
  explicit Tree(const std::map<std::string, std::string>& files) {
    for (const auto& [path, content] : files) {
      std::filesystem::create_directories(std::filesystem::path(folder / path).parent_path());
      std::ofstream(folder / path) << content;
    }
  }
  testing::ScratchFolder folder;
};

TEST(MemoryGroup, IsFoundInBothVersions) {
  EXPECT_EQ(MemoryGroup::parse(version_1), (MemoryGroup{true, "/slurm/uid_0/job_1/step_0/task_0"}));
  EXPECT_EQ(MemoryGroup::parse(version_2),
            (MemoryGroup{false, "/system.slice/slurmstepd.scope/job_1/step_0/user/task_0"}));
}

TEST(MemoryGroup, IsNotFoundInWhatIsNone) {
  for (const std::string& text :
       {std::string(), std::string("memory"), std::string("4:memory:relative"), std::string("0::/a/../../etc"),
        "0::/" + std::string(100000, 'a'), std::string(100000, ':')})
    EXPECT_FALSE(MemoryGroup::parse(text)) << text.substr(0, 60);
}

TEST(MemoryUse, OfVersion1HasTheStepsLimit) {
  const std::string step = "memory/slurm/uid_0/job_1/step_0/";
  const Tree tree({{step + "task_0/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"},
                   {step + "task_0/memory.limit_in_bytes", "9223372036854771712\n"},
                   {step + "memory.limit_in_bytes", "322122547200\n"},
                   {step + "memory.max_usage_in_bytes", "322122547200\n"},
                   {"memory/slurm/uid_0/job_1/memory.limit_in_bytes", "322122547200\n"},
                   {"memory/memory.limit_in_bytes", "9223372036854771712\n"}});
  EXPECT_EQ(read_memory_use(*MemoryGroup::parse(version_1), tree.folder.path()),
            (MemoryUse{2, 322122547200, 322122547200, "step"}));
}

TEST(MemoryUse, OfVersion2HasTheJobsLimit) {
  const std::string job = "system.slice/slurmstepd.scope/job_1/";
  const Tree tree(
      {{job + "step_0/user/task_0/memory.events", "low 0\nhigh 0\nmax 84\noom 3\noom_kill 1\noom_group_kill 0\n"},
       {job + "step_0/user/task_0/memory.max", "max\n"},
       {job + "step_0/user/memory.max", "max\n"},
       {job + "step_0/memory.max", "max\n"},
       {job + "memory.max", "1073741824\n"},
       {job + "memory.peak", "1073741000\n"}});
  EXPECT_EQ(read_memory_use(*MemoryGroup::parse(version_2), tree.folder.path()),
            (MemoryUse{1, 1073741824, 1073741000, "job"}));
}

TEST(MemoryUse, OfAGroupThatCannotBeReadIsUnknown) {
  const Tree tree({{"a/memory.events", "oom 1\n"}, {"b/memory.events", "oom_kill many\n"}, {"c/memory.max", "1\n"}});
  for (const std::string path : {"/a", "/b", "/c", "/d"})
    EXPECT_FALSE(read_memory_use({false, path}, tree.folder.path())) << path;
  ASSERT_EQ(::mkfifo((tree.folder.path() + "/c/memory.events").c_str(), 0600), 0);
  EXPECT_FALSE(read_memory_use({false, "/c"}, tree.folder.path())) << "a FIFO does not block";
}

}  // namespace
}  // namespace amldist::step::memory_group_test
