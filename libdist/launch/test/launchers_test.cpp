#include "launch/frameworks/launchers.hpp"

#include "support.hpp"

namespace amldist::launch {
namespace {

using testing::environment;

std::string launcher_in(std::string_view line) {
  const auto found = find_launcher(line);
  return found ? std::string(found->name) : "-";
}

TEST(Launchers, AreFoundBehindWhateverStartsThem) {
  struct Case {
    const char* line;
    const char* name;
  };
  const Case cases[] = {
      {"torchrun train.py", "torchrun"},
      {"/opt/venv/bin/torchrun --nproc_per_node=8 train.py", "torchrun"},
      {"python -m torch.distributed.run train.py", "torch.distributed.run"},
      {"python3.11 -u -X dev -mtorch.distributed.launch --use_env train.py", "torch.distributed.launch"},
      {"python /opt/venv/bin/torchrun train.py", "torchrun"},
      {"accelerate launch train.py", "accelerate launch"},
      {"fabric run --devices 8 train.py", "fabric run"},
      {"composer -n 8 train.py", "composer"},
      {"deepspeed --num_gpus 8 train.py", "deepspeed"},
      {"colossalai run --nproc_per_node 8 train.py", "colossalai run"},
      {"horovodrun -np 8 python train.py", "horovodrun"},
      {"mpirun -np 8 ./program", "mpirun"},
      {"mpiexec.hydra -n 8 ./program", "mpiexec"},
      {"env -u X A=b OMP_NUM_THREADS=1 torchrun train.py", "torchrun"},
      {"A=b nohup nice -n 5 torchrun train.py", "torchrun"},
      {"numactl -N 0 --localalloc torchrun train.py", "torchrun"},
      {"timeout -k 10 5m torchrun train.py", "torchrun"},
      {"nsys profile -o out -t cuda,nvtx torchrun train.py", "torchrun"},
      {"uv run --with torch -- torchrun train.py", "torchrun"},
      {"conda run -n deepspeed --no-capture-output torchrun train.py", "torchrun"},
      {"apptainer exec --nv -B /data image.sif torchrun train.py", "torchrun"},
      {"bash -lc 'cd /data && torchrun train.py'", "torchrun"},
      {"bash -c \"exec env A=b bash -c 'torchrun train.py'\"", "torchrun"},
      {"if true; then torchrun train.py; fi", "torchrun"},
      // Programs that are not launchers.
      {"./torchrun-results.sh", "-"},
      {"python torchrun.py", "-"},
      {"python train.py -m torch.distributed.run", "-"},
      {"python train.py --launcher torchrun", "-"},
      {"python -c 'import torchrun' torchrun", "-"},
      {"conda run -n deepspeed python train.py", "-"},
      {"uv sync torchrun", "-"},
      {"accelerate config", "-"},
      {"fabric deploy", "-"},
      {"bash torchrun", "-"},
      {"echo torchrun", "-"},
      {"# torchrun train.py", "-"},
      {"", "-"},
  };
  for (const Case& each : cases) EXPECT_EQ(launcher_in(each.line), each.name) << each.line;
}

TEST(Launchers, FlagsAreReadUpToTheProgram) {
  const auto found = find_launcher(
      "torchrun --nproc-per-node=8 --nnodes 2 --node_rank $SLURM_NODEID --rdzv_endpoint h:1 train.py --node_rank 9 "
      "--standalone");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->processes, "8");
  EXPECT_EQ(found->nodes, "2");
  EXPECT_EQ(found->node_rank, "$SLURM_NODEID");
  EXPECT_TRUE(found->has_meeting_point);
  EXPECT_FALSE(found->is_alone);
}

/// "refused: ...", "warned: ...", or "" for a step that starts without a word.
std::string checked(std::string_view option, std::string_view vector, std::uint32_t tasks, std::uint32_t nodes,
                    std::string_view line, const testing::Variables& variables = {}) {
  const auto result = check_launcher(*parse_spec(option), *TaskMap::parse(vector, tasks, nodes), *find_launcher(line),
                                     environment(variables));
  if (!result) testing::expect_sentence(result.error().message);
  if (!result) return "refused: " + result.error().message;
  return result->empty() ? std::string() : "warned: " + *result;
}

TEST(Launchers, StepsOfSeveralWorldsAreRefusedInASentence) {
  constexpr std::string_view eight = "(vector,(0,1,8))";
  constexpr std::string_view two_nodes = "(vector,(0,2,1))";
  EXPECT_EQ(checked("pytorch", eight, 8, 1, "torchrun --nproc_per_node=8 train.py"),
            "refused: 8 tasks on the node, each of which would start 8 processes (torchrun): use launch=per-node with "
            "--ntasks-per-node=1");
  EXPECT_EQ(checked("pytorch", two_nodes, 2, 2, "accelerate launch train.py"),
            "refused: 2 tasks on 2 nodes, each of which would start a node's processes (accelerate launch): use "
            "launch=per-node with --ntasks-per-node=1");
  EXPECT_EQ(
      checked("mpi", two_nodes, 2, 2, "mpirun -np 1 ./program"),
      "refused: 2 tasks on 2 nodes, each of which would start 1 process (mpirun): give srun the program itself, or "
      "start the launcher outside srun");
  EXPECT_EQ(checked("tensorflow", two_nodes, 2, 2, "torchrun train.py").substr(0, 8), "refused:");
  EXPECT_EQ(
      checked("pytorch", two_nodes, 2, 2, "torchrun --nnodes 2 --node_rank 0 train.py"),
      "refused: torchrun is told that it is on node 0 in all 2 tasks on 2 nodes (a batch script has put the number "
      "there): write bash -c '... $NODE_RANK ...'");
  EXPECT_EQ(checked("pytorch,launch=per-node", two_nodes, 2, 2, "torchrun --node-rank=0 train.py").substr(0, 8),
            "refused:");
  EXPECT_EQ(checked("pytorch,launch=per-node", two_nodes, 2, 2, "torchrun --standalone train.py"),
            "refused: torchrun --standalone on each of 2 nodes would make 2 worlds: leave that flag out and use "
            "launch=per-node");
  EXPECT_EQ(checked("pytorch,launch=per-node", two_nodes, 2, 2, "torchrun --nnodes=1 train.py").substr(0, 22),
            "refused: torchrun of 1");
}

TEST(Launchers, WhatIsOneWorldOrMayBeMeantStarts) {
  constexpr std::string_view eight = "(vector,(0,1,8))";
  constexpr std::string_view two_nodes = "(vector,(0,2,1))";
  EXPECT_EQ(checked("pytorch", "(vector,(0,1,1))", 1, 1, "torchrun --nproc_per_node=8 train.py"), "");
  EXPECT_EQ(checked("pytorch,launch=per-node", two_nodes, 2, 2, "torchrun train.py"), "");
  EXPECT_EQ(checked("pytorch", two_nodes, 2, 2, "torchrun --nnodes 2 --node_rank $NODE_RANK train.py"), "");
  EXPECT_EQ(checked("pytorch", two_nodes, 2, 2, "torchrun --rdzv_endpoint h:1 --node_rank 0 train.py"), "");
  EXPECT_EQ(checked("pytorch", two_nodes, 2, 2, "torchrun train.py", {{"PET_NNODES", "2"}}), "");
  EXPECT_EQ(checked("pytorch", eight, 8, 1, "torchrun --nnodes 8 --node_rank $RANK train.py").substr(0, 7), "warned:");
  EXPECT_EQ(checked("pytorch", two_nodes, 2, 2, "accelerate launch --config_file c.yml train.py").substr(0, 7),
            "warned:");
}

}  // namespace
}  // namespace amldist::launch
