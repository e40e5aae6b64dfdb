// The pure parts of `aml-dist ray`: sizes, command lines, variables, the folder's path, reasons.
#include <gtest/gtest.h>

#include <algorithm>

#include "aml_dist/ray/arguments.hpp"
#include "aml_dist/ray/folder.hpp"
#include "aml_dist/ray/local_ray.hpp"
#include "aml_dist/ray/surroundings.hpp"
#include "support.hpp"

namespace amldist::ray::ray_test {
namespace {

using testing::environment;

constexpr std::uint64_t gib = std::uint64_t{1} << 30;

MachineFacts machine() {
  return {.cpus_in_mask = 8, .memory = 64 * gib, .free_memory = 60 * gib, .free_shared_memory = 32 * gib};
}

Place place(std::uint32_t node) {
  Place out;
  out.node = node;
  out.nodes = 2;
  out.host = "n1";
  out.head = *Ipv4::parse("10.0.0.1");
  out.master_port = 20000;
  out.step = "12.3";
  return out;
}

bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::ranges::find(words, word) != words.end();
}

TEST(RayResources, AreTheStepsAndNotTheMachines) {
  struct Case {
    testing::Variables variables;
    std::uint32_t cpus;
    std::uint32_t gpus;
    std::uint64_t memory;
  };
  for (const auto& [variables, cpus, gpus, memory] :
       std::initializer_list<Case>{{{}, 8, 0, 60 * gib},
                                   {{{"SLURM_CPUS_PER_TASK", "3"}, {"SLURM_CPUS_ON_NODE", "6"}}, 3, 0, 60 * gib},
                                   {{{"SLURM_CPUS_ON_NODE", "64"}, {"CUDA_VISIBLE_DEVICES", "0,2"}}, 8, 2, 60 * gib},
                                   {{{"SLURM_MEM_PER_NODE", "10240"}}, 8, 0, 10 * gib},
                                   {{{"SLURM_MEM_PER_CPU", "1024"}, {"SLURM_CPUS_PER_TASK", "2"}}, 2, 0, 2 * gib},
                                   {{{"SLURM_MEM_PER_NODE", "0"}}, 8, 0, 60 * gib},
                                   {{{"SLURM_CPUS_PER_TASK", "x"}, {"SLURM_MEM_PER_NODE", "-1"}}, 8, 0, 60 * gib}}) {
    std::vector<std::string> notes;
    const Resources out = choose_resources(machine(), environment(variables), notes);
    EXPECT_EQ(out.cpus, cpus);
    EXPECT_EQ(out.gpus, gpus);
    EXPECT_EQ(out.object_store, memory * 3 / 10);
    EXPECT_EQ(out.memory, memory - out.object_store);
    EXPECT_TRUE(notes.empty());
  }
}

TEST(RayResources, SayWhatIsLessThanExpected) {
  MachineFacts facts = machine();
  facts.cgroup_memory = 4 * gib;
  std::vector<std::string> notes;
  EXPECT_EQ(choose_resources(facts, environment({}), notes).object_store, 4 * gib * 3 / 10);
  EXPECT_TRUE(notes.empty());

  facts.free_shared_memory = gib;
  const Resources less = choose_resources(facts, environment({}), notes);
  EXPECT_EQ(less.object_store, gib / 20 * 19);
  EXPECT_FALSE(less.store_on_disk);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_NE(notes[0].find("instead of 1.1 GiB"), std::string::npos) << notes[0];

  facts.free_shared_memory = 0;
  facts.has_nvidia_gpus = true;
  const Resources disk = choose_resources(facts, environment({}), notes);
  EXPECT_TRUE(disk.store_on_disk);
  EXPECT_EQ(disk.object_store, 4 * gib * 3 / 10);
  EXPECT_EQ(disk.gpus, 0U);
  ASSERT_EQ(notes.size(), 3U);
  for (const std::string& note : notes) testing::expect_sentence(note);
}

TEST(RayArguments, GiveEachPortOfTheStepAndLetTheUsersSizesWin) {
  const Program program{"/opt/ray", "2.60.0", "3.11.2"};
  const Resources resources{4, 2, 8 * gib, gib, false};
  const Wishes wishes{{"--num-cpus", "0"}, {"--min-worker-port=30000", "--max-worker-port=31000"}, 0};
  const auto head = start_command(program, place(0), place(0).head, resources, wishes, "/tmp/x");
  EXPECT_EQ(head.front(), "/opt/ray");
  for (const char* const word :
       {"--head", "--port=20000", "--node-manager-port=20002", "--object-manager-port=20003",
        "--runtime-env-agent-port=20004", "--dashboard-agent-grpc-port=20005", "--dashboard-agent-listen-port=20006",
        "--metrics-export-port=20007", "--ray-client-server-port=20008", "--dashboard-port=20009",
        "--min-worker-port=0", "--num-gpus=2", "--object-store-memory=1073741824", "--temp-dir=/tmp/x/r",
        "--include-dashboard=true"}) {
    EXPECT_TRUE(has(head, word)) << word;
  }
  EXPECT_FALSE(has(head, "--num-cpus=4"));
  const auto worker = start_command(program, place(1), *Ipv4::parse("10.0.0.2"), resources, wishes, "/tmp/x");
  for (const char* const word : {"--address=10.0.0.1:20000", "--node-ip-address=10.0.0.2", "--num-cpus=4"}) {
    EXPECT_TRUE(has(worker, word)) << word;
  }
  for (const char* const word : {"--head", "--min-worker-port=0", "--temp-dir=/tmp/x/r", "--include-dashboard=true"}) {
    EXPECT_FALSE(has(worker, word)) << word;
  }
}

TEST(RayArguments, ThatAreOursAreRefused) {
  EXPECT_TRUE(check_arguments({"--num-cpus=3", "--resources={\"a\": 1}", "--worker-port-list=1,2"}));
  for (const char* const word : {"--head", "--block", "--port=1", "--temp-dir", "--dashboard-port=8265"}) {
    const auto status = check_arguments({"--num-cpus=3", word});
    ASSERT_FALSE(status) << word;
    testing::expect_sentence(status.error().message);
  }
}

TEST(RayVariables, OfRayHideTheRanksAndHaveAToken) {
  Place here = place(0);
  here.credentials = {world::Key::from_secret("secret"), world::Trust::authenticated};
  const std::vector<std::string> all = {"HOME=/h", "WORLD_SIZE=2", "MASTER_ADDR=n1", "RAY_ADDRESS=n1:20000",
                                        "SLURM_PROCID=1"};
  const Program with{"ray", "2.52.0", ""};
  const auto ray = variables_of_ray(all, here, with);
  EXPECT_FALSE(has(ray, "WORLD_SIZE=2") || has(ray, "SLURM_PROCID=1"));
  EXPECT_TRUE(has(ray, "RAY_ADDRESS=10.0.0.1:20000"));
  EXPECT_TRUE(has(ray, "RAY_AUTH_MODE=token"));
  EXPECT_TRUE(has(variables_of_driver(all, here, with), "WORLD_SIZE=2"));
  EXPECT_FALSE(has(variables_of_ray(all, here, {"ray", "2.51.9", ""}), "RAY_AUTH_MODE=token"));
  EXPECT_FALSE(has(variables_of_ray({"RAY_AUTH_MODE=disabled"}, here, with), "RAY_AUTH_MODE=token"));
  EXPECT_EQ(token_of(here).size(), 64U);
  EXPECT_EQ(token_of(place(0)), "") << "no secret";
}

TEST(RayFolder, LeavesRoomForSockets) {
  const auto path = folder_path(place(0), "/tmp");
  ASSERT_TRUE(path);
  EXPECT_TRUE(path->starts_with("/tmp/aml-ray-12.3-")) << *path;
  Place longest = place(0);
  longest.step = "4294967295.9999";
  EXPECT_TRUE(folder_path(longest, "/tmp"));
  const auto refused = folder_path(place(0), "/scratch/a-long-folder");
  ASSERT_FALSE(refused);
  testing::expect_sentence(refused.error().message);
}

TEST(RayReason, IsTheProcessThatDiedOrTheLastLine) {
  EXPECT_EQ(reason_in(""), "");
  EXPECT_EQ(reason_in("INFO x\nValueError: no room\n\n"), "ValueError: no room");
  EXPECT_EQ(reason_in("x\nSome Ray subprocesses exited unexpectedly:\n  raylet [exit code=-9]\n\nRemaining\n"),
            "raylet ended with signal 9");
  EXPECT_EQ(
      reason_in(
          "2026-11-27 ERR scripts.py:87 -- gcs_server [exit code=1]\nraylet [exit code=-11]\n--- raylet.out\nx\n"),
      "gcs_server ended with exit status 1, raylet ended with signal 11");
}

}  // namespace
}  // namespace amldist::ray::ray_test
