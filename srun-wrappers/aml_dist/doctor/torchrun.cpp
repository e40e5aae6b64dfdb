// torchrun without flags, torch.distributed.launch with Azure ML's flags, and `accelerate launch` with its own
// (torch/distributed/run.py 2.15 and 1.13; accelerate 1.15). All three start the processes of their node one after
// another; they ignore RANK, WORLD_SIZE and LOCAL_RANK of their own environment.
#include "aml_dist/doctor/rules.hpp"
#include "base/text/text.hpp"
#include "launch/frameworks/launchers.hpp"

namespace amldist::doctor {
namespace {

using text::concat;

struct Numbers {
  std::uint64_t nodes;
  std::uint64_t node_rank;
  std::optional<std::uint64_t> processes;  ///< on each node; nullopt: as many as it finds devices
  std::string address;
  std::string port;
};

/// "2" or an elastic range "1:4", of which it waits for the lower end.
std::uint64_t nodes_in(const std::string& text) {
  return text::to_number(text::split(text, ':').front(), 1U << 20).value_or(1);
}

Numbers numbers_of_torchrun(const TaskContext& here) {
  const std::string address = here.text("PET_MASTER_ADDR");
  const std::string port = here.text("PET_MASTER_PORT");
  const auto processes =
      here.has("PET_NPROC_PER_NODE") ? here.number("PET_NPROC_PER_NODE") : std::optional<std::uint64_t>(1);
  return {nodes_in(here.text("PET_NNODES")), here.number("PET_NODE_RANK").value_or(0), processes,
          address.empty() ? "127.0.0.1" : address, port.empty() ? "29500" : port};
}

TaskContext child_of(const TaskContext& here, const Numbers& numbers) {
  const std::uint64_t each = numbers.processes.value_or(1);
  return here.changed({{"RANK", std::to_string(numbers.node_rank * each)},
                       {"WORLD_SIZE", std::to_string(numbers.nodes * each)},
                       {"LOCAL_RANK", "0"},
                       {"LOCAL_WORLD_SIZE", std::to_string(each)},
                       {"GROUP_RANK", std::to_string(numbers.node_rank)},
                       {"MASTER_ADDR", numbers.address},
                       {"MASTER_PORT", numbers.port},
                       {"TORCHELASTIC_RUN_ID", "none"},
                       {"TORCHELASTIC_RESTART_COUNT", "0"},
                       {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
}

/// What srun would say of this command as the step's program.
std::optional<Problem> several_worlds(const TaskContext& here, const launch::LauncherCommand& command) {
  launch::Spec spec;
  spec.kind = here.kind().value_or(launch::Kind::pytorch);
  if (here.start() == Start::per_node) spec.launch = launch::Launch::per_node;
  const launch::StepShape shape = {static_cast<std::uint32_t>(here.tasks()), static_cast<std::uint32_t>(here.nodes()),
                                   static_cast<std::uint32_t>(here.tasks_here())};
  const auto said = check_launcher(spec, shape, command, here.environment());
  if (said && said->empty()) return std::nullopt;
  const std::string sentence = said ? *said : said.error().message;
  const auto remedy = sentence.rfind(": ");
  return Problem{said ? Outcome::warns : Outcome::fails, sentence.substr(0, remedy), sentence.substr(remedy + 2)};
}

/// Problems of every launcher that is built on torchrun.
std::optional<Problem> launcher_problem(const TaskContext& here, std::string_view name) {
  if (here.tasks_here() > 1) {  // even if it is told of the others
    auto problem = several_worlds(here, {.name = name});
    if (problem) problem->reason += "; the second finds the port taken (EADDRINUSE)";
    return problem;
  }
  const bool old_torch = here.machine().torch && here.machine().torch->starts_with("1.");
  const bool tees = here.text("PET_REDIRECTS") == "1" && here.text("PET_TEE") == "1";
  if (old_torch && here.machine().python_version == "3.11" && !tees) {
    return Problem{Outcome::fails,
                   concat({"PyTorch ", *here.machine().torch,
                           " on Python 3.11: AttributeError: 'NoneType' object has no attribute 'get'"}),
                   "export PET_REDIRECTS=1 PET_TEE=1"};
  }
  return std::nullopt;
}

std::optional<Problem> torchrun_problem(const TaskContext& here, const Numbers& numbers) {
  if (auto problem = launcher_problem(here, "torchrun")) return problem;
  if (here.text("PET_NPROC_PER_NODE") == "gpu" && here.gpus() == 0) {
    return Problem{Outcome::fails, "PET_NPROC_PER_NODE=gpu: ValueError: Cuda is not available.", "nproc_per_node=N"};
  }
  if (numbers.nodes < here.nodes()) {
    return Problem{
        Outcome::alone,
        concat({"without PET_NNODES or --nnodes it takes its node for the only one of ", std::to_string(here.nodes())}),
        "srun --aml-dist=pytorch,launch=per-node"};
  }
  if (numbers.nodes == 1) return std::nullopt;
  if (here.is_true("PET_STANDALONE")) {
    return Problem{Outcome::hangs, "PET_STANDALONE keeps each node to itself while PET_NNODES waits for the others",
                   "unset PET_STANDALONE"};
  }
  if (numbers.nodes > here.nodes() && here.in_step()) {
    return Problem{
        Outcome::hangs,
        concat({"PET_NNODES=", std::to_string(numbers.nodes), " but the step has ", text::count(here.nodes(), "node")}),
        "unset PET_NNODES"};
  }
  const bool endpoint = here.has("PET_RDZV_ENDPOINT");
  if (!endpoint && is_loopback(numbers.address)) {
    return Problem{Outcome::hangs, concat({"its master is ", numbers.address, ", a different machine on each node"}),
                   "srun --aml-dist=pytorch,launch=per-node"};
  }
  if (!endpoint && !here.has("PET_NODE_RANK")) {
    return Problem{Outcome::hangs, "without PET_NODE_RANK or --node-rank every node is the first one",
                   "srun --aml-dist=pytorch,launch=per-node"};
  }
  return std::nullopt;
}

Launch launched(const TaskContext& here, const Numbers& numbers, std::optional<Problem> problem) {
  FrameworkResult itself;
  if (numbers.processes) itself.size = numbers.nodes * *numbers.processes;
  if (!numbers.address.empty()) itself.master = concat({numbers.address, ":", numbers.port});
  if (problem) itself = with(itself, std::move(*problem));
  return {std::move(itself), child_of(here, numbers)};
}

/// A launcher whose flags a script fills from NODE_RANK, MASTER_ADDR and MASTER_PORT.
Launch start_with_flags(const TaskContext& here, std::string_view name) {
  const Numbers torchrun = numbers_of_torchrun(here);
  const Numbers numbers{here.nodes(), here.number("NODE_RANK").value_or(0), torchrun.processes,
                        here.text("MASTER_ADDR"), here.text("MASTER_PORT")};
  auto problem = launcher_problem(here, name);
  for (const std::string_view variable : {"NODE_RANK", "MASTER_ADDR", "MASTER_PORT"}) {
    if (problem || !here.text(variable).empty()) continue;
    problem = Problem{Outcome::fails, concat({"$", variable, " is not set, so the flag has no value"}),
                      "srun --aml-dist=pytorch,launch=per-node"};
  }
  if (!problem && numbers.nodes > 1 && is_loopback(numbers.address)) {
    problem = Problem{Outcome::hangs, concat({"MASTER_ADDR=", numbers.address, " is a different machine on each node"}),
                      "unset MASTER_ADDR"};
  }
  return launched(here, numbers, std::move(problem));
}

}  // namespace

Launch start_torchrun(const TaskContext& here) {
  const Numbers numbers = numbers_of_torchrun(here);
  return launched(here, numbers, torchrun_problem(here, numbers));
}

Launch start_torch_launch(const TaskContext& here) { return start_with_flags(here, "torch.distributed.launch"); }

Launch start_accelerate_launch(const TaskContext& here) { return start_with_flags(here, "accelerate launch"); }

FrameworkResult examine_command(const TaskContext& here, const std::vector<std::string>& words) {
  FrameworkResult result{.framework = "command", .launcher = "srun", .environment = words.front()};
  const auto launcher = launch::find_launcher(words);
  if (!launcher) return result;
  result.launcher = launcher->name;
  if (auto problem = several_worlds(here, *launcher)) return with(result, std::move(*problem));
  return result;
}

}  // namespace amldist::doctor
