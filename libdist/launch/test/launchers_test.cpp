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
      {"ft_launcher --nproc-per-node=8 train.py", "ft_launcher"},
      {"tune run --nproc_per_node 4 full_finetune_distributed --config c", "tune run"},
      {"axolotl train config.yml --launcher torchrun", "axolotl"},
      {"llamafactory-cli train config.yml", "llamafactory-cli"},
      {"lightning run model train.py", "lightning run"},
      {"python -m accelerate.commands.accelerate_cli launch train.py", "accelerate launch"},
      {"python -m horovod.runner.launch -np 2 python train.py", "horovodrun"},
      {"ray symmetric-run --address h:1 -- python train.py", "ray symmetric-run"},
      {"mpirun.mpich -np 8 ./program", "mpirun"},
      {"srun -n8 python train.py", "srun"},
      {"uvx --from torch torchrun train.py", "torchrun"},
      {"podman-hpc run --rm -v /a:/a image torchrun train.py", "torchrun"},
      {"compute-sanitizer --tool memcheck torchrun train.py", "torchrun"},
      {"rocprofv3 -d out -- torchrun train.py", "torchrun"},
      {"aml-dist exec -- torchrun --node-rank '$NODE_RANK' train.py", "torchrun"},
      {"hatch run -e gpu torchrun train.py", "torchrun"},
      {"python a.py 2>&1 | tee log\ntorchrun train.py", "torchrun"},
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
      {"axolotl preprocess config.yml", "-"},
      {"llamafactory-cli webui", "-"},
      {"ray start --head", "-"},
      {"tune ls", "-"},
      {"podman images torchrun", "-"},
      {"srun-results -n8", "-"},
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
  EXPECT_EQ(find_launcher("mpirun -n8 ./program -n 9")->processes, "8");
  EXPECT_EQ(find_launcher("srun -N2 -n8 hostname")->nodes, "2");
}

/// "refused: ...", "warned: ...", or "" for a step that starts without a word.
std::string checked(std::string_view option, StepShape step, std::string_view line,
                    const testing::Variables& variables = {}) {
  const auto result = check_launcher(*parse_spec(option), step, *find_launcher(line), environment(variables));
  if (!result) testing::expect_sentence(result.error().message);
  if (!result) return "refused: " + result.error().message;
  return result->empty() ? std::string() : "warned: " + *result;
}

constexpr StepShape one_task;
constexpr StepShape eight = {8, 1, 8};
constexpr StepShape two_nodes = {2, 2, 1};

TEST(Launchers, AreFoundInScripts) {
  const auto file_of = [](const std::vector<std::string>& words) { return script_of(words); };
  EXPECT_EQ(file_of({"env", "A=b", "./job.sh", "x"}), "./job.sh");
  EXPECT_EQ(file_of({"timeout", "60", "bash", "-e", "job.sh"}), "job.sh");
  EXPECT_EQ(file_of({"sh", "-c", "job.sh"}), "") << "a line";
  EXPECT_EQ(file_of({"python3", "job.sh"}), "");
  EXPECT_EQ(file_of({"bash"}), "");
  EXPECT_EQ(file_of({}), "");
  const auto launcher = [](std::string_view text, bool is_for_shell = false) {
    const auto found = find_launcher_in_script(text, is_for_shell);
    return found ? std::string(found->name) : "-";
  };
  EXPECT_EQ(launcher("#!/bin/bash\n#SBATCH -N2\ncd /data\nexec torchrun train.py\n"), "torchrun");
  EXPECT_EQ(launcher("#!/usr/bin/env bash\ntorchrun train.py\n"), "torchrun");
  EXPECT_EQ(launcher("#! /bin/sh -e\nmpirun -np 2 x\n"), "mpirun");
  EXPECT_EQ(launcher("torchrun train.py\n"), "-") << "not for a shell";
  EXPECT_EQ(launcher("torchrun train.py\n", true), "torchrun");
  EXPECT_EQ(launcher("#!/usr/bin/python3\ntorchrun train.py\n"), "-");
  EXPECT_EQ(launcher("\x7f"
                     "ELF torchrun"),
            "-");
  EXPECT_EQ(launcher(""), "-");
}

TEST(Launchers, CopiesOfOneTaskAreWarnedOf) {
  EXPECT_EQ(checked("pytorch", one_task, "mpirun -np 4 python train.py"),
            "warned: 1 task, which would start 4 processes (mpirun), each of them with RANK=0 and WORLD_SIZE=1: leave "
            "mpirun out and use -n4");
  EXPECT_EQ(checked("mpi", one_task, "mpiexec.hydra -n 2 ./program"),
            "warned: 1 task, which would start 2 processes (mpiexec), each of them with RANK=0 and WORLD_SIZE=1: leave "
            "mpiexec out and use -n2, or use launch=per-node");
  for (const auto* const fine : {"mpirun -np 1 x", "mpirun x", "torchrun --nproc_per_node=8 x.py", "srun -n 4 x",
                                 "[ $RANK = 0 ] && mpirun -np 4 x"})
    EXPECT_EQ(checked("pytorch", one_task, fine), "") << fine;
  EXPECT_EQ(checked("mpi,launch=per-node", one_task, "mpirun -np 4 x"), "");
}

TEST(Launchers, StepsOfSeveralWorldsAreRefusedInASentence) {
  struct Case {
    const char* option;
    StepShape step;
    const char* line;
    const char* sentence;
  };
  const Case cases[] = {
      {"pytorch", eight, "torchrun --nproc_per_node=8 train.py",
       "8 tasks on the node, each of which would start 8 processes (torchrun): use launch=per-node with "
       "--ntasks-per-node=1"},
      {"pytorch", two_nodes, "accelerate launch train.py",
       "2 tasks on 2 nodes, each of which would start a node's processes (accelerate launch): use launch=per-node with "
       "--ntasks-per-node=1"},
      {"mpi", two_nodes, "mpirun -np 1 ./program",
       "2 tasks on 2 nodes, each of which would start 1 process (mpirun): leave mpirun out (srun starts every "
       "process), "
       "or start it outside srun"},
      {"tensorflow", two_nodes, "torchrun train.py",
       "2 tasks on 2 nodes, each of which would start a node's processes (torchrun): leave torchrun out (srun starts "
       "every process)"},
      {"pytorch", two_nodes, "torchrun --nnodes 2 --node_rank 0 train.py",
       "torchrun is told that it is on node 0 in all 2 tasks on 2 nodes (a batch script has put the number there): "
       "write "
       "bash -c '... $NODE_RANK ...'"},
      {"pytorch,launch=per-node", two_nodes, "torchrun --node-rank=0 train.py",
       "torchrun is told that it is on node 0 in all 2 tasks on 2 nodes (a batch script has put the number there): "
       "leave "
       "that flag out"},
      {"pytorch,launch=per-node", two_nodes, "torchrun --standalone train.py",
       "torchrun --standalone on each of 2 nodes would make 2 worlds: leave that flag out and use launch=per-node"},
      {"pytorch,launch=per-node", two_nodes, "torchrun --nnodes=1 train.py",
       "torchrun of 1 node on each of 2 nodes would make 2 worlds: leave that flag out and use launch=per-node"},
      // Per node, and each launcher takes its node for the only one.
      {"mpi,launch=per-node", two_nodes, "mpirun -np 8 ./program",
       "mpirun on each of 2 nodes is not told of the others and would make 2 worlds: leave it out (srun starts every "
       "process), or start it outside srun"},
      {"mpi,launch=per-node", two_nodes, "torchrun train.py",
       "torchrun on each of 2 nodes is not told of the others and would make 2 worlds: write bash -c 'torchrun "
       "--nnodes=N --node-rank=$NODE_RANK ...'"},
      {"pytorch,launch=per-node", two_nodes, "composer -n 8 train.py",
       "composer on each of 2 nodes is not told of the others and would make 2 worlds: write bash -c 'composer "
       "--world-size=N --node-rank=$NODE_RANK ...'"},
      {"pytorch,launch=per-node", two_nodes, "llamafactory-cli train c.yml",
       "llamafactory-cli on each of 2 nodes is not told of the others and would make 2 worlds: export NNODES=2"},
  };
  for (const Case& each : cases) {
    EXPECT_EQ(checked(each.option, each.step, each.line), std::string("refused: ") + each.sentence) << each.line;
  }
}

TEST(Launchers, WhatIsOneWorldOrMayBeMeantStarts) {
  struct Case {
    const char* option;
    StepShape step;
    const char* line;
    testing::Variables variables = {};
  };
  const Case silent[] = {
      {"pytorch", one_task, "torchrun --nproc_per_node=8 train.py"},
      {"pytorch,launch=per-node", two_nodes, "torchrun train.py"},
      {"pytorch,launch=per-node", two_nodes, "ft_launcher train.py"},
      {"pytorch", two_nodes, "torchrun --nnodes 2 --node_rank $NODE_RANK train.py"},
      {"pytorch", two_nodes, "torchrun --rdzv_endpoint h:1 --node_rank 0 train.py"},
      {"pytorch", two_nodes, "torchrun train.py", {{"PET_NNODES", "2"}}},
      {"pytorch,launch=per-node", two_nodes, "llamafactory-cli train c.yml", {{"NNODES", "2"}}},
      {"pytorch,launch=per-node", two_nodes, "deepspeed --no_ssh --node_rank $NODE_RANK train.py"},
      {"ray", two_nodes, "ray symmetric-run -- python train.py"},
      // The line asks for the number of its task first.
      {"pytorch", two_nodes, "[ $SLURM_PROCID != 0 ] || mpirun -np 4 ./program"},
      {"pytorch", two_nodes, "if ((RANK == 0)); then srun -n4 hostname; fi"},
      {"pytorch", eight, "bash -c 'if [[ $LOCAL_RANK = 0 ]]; then torchrun train.py; fi'"},
  };
  for (const Case& each : silent)
    EXPECT_EQ(checked(each.option, each.step, each.line, each.variables), "") << each.line;
  const Case warned[] = {
      {"pytorch", eight, "torchrun --nnodes 8 --node_rank $RANK train.py"},
      {"pytorch", two_nodes, "accelerate launch --config_file c.yml train.py"},
      {"pytorch", two_nodes, "srun --overlap hostname"},
      {"pytorch", eight, "axolotl train config.yml"},
  };
  for (const Case& each : warned) {
    EXPECT_EQ(checked(each.option, each.step, each.line).substr(0, 7), "warned:") << each.line;
  }
  EXPECT_EQ(checked("pytorch", two_nodes, "echo $RANK; torchrun train.py").substr(0, 8), "refused:");
}

}  // namespace
}  // namespace amldist::launch
