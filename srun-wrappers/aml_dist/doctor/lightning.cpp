// PyTorch Lightning's choice of a cluster environment (lightning/fabric/plugins/environments, 2.6): TorchElastic,
// Slurm, LSF, MPI, Lightning, the first that recognises its environment. Scripts are assumed to ask for the step's own
// shape: num_nodes = nodes, devices = processes of a node.
#include <algorithm>
#include <array>

#include "aml_dist/doctor/rules.hpp"
#include "base/text/text.hpp"

namespace amldist::doctor {
namespace {

using text::concat;

/// Processes of a node that a script would ask for.
std::uint64_t devices_wanted(const TaskContext& here) {
  if (here.start() == Start::per_node) return here.number("PET_NPROC_PER_NODE").value_or(std::max(1U, here.gpus()));
  return here.tasks_here();
}

bool slurm_is_interactive(const TaskContext& here) {
  const std::string name = here.text("SLURM_JOB_NAME");
  return name == "bash" || name == "interactive";
}

/// The first host as SLURMEnvironment.resolve_root_node_address() reads the list: it replaces the text from the first
/// bracket to the last by the text between the first bracket and the next comma or dash, and then takes single numbers
/// out of their brackets.
std::string lightning_first_host(std::string list) {
  const std::size_t open = list.find('[');
  const std::size_t cut = open == std::string::npos ? open : list.find_first_of(",-", open);
  const std::size_t close = list.rfind(']');
  if (cut != std::string::npos && close != std::string::npos && close > cut) {
    list = concat({list.substr(0, open), list.substr(open + 1, cut - open - 1), list.substr(close + 1)});
  }
  list.resize(std::min(list.size(), list.find_first_of(" ,")));
  const std::size_t bracket = list.find('[');
  const std::size_t end = bracket == std::string::npos ? bracket : list.find(']', bracket);
  if (end == std::string::npos) return list;
  return concat({list.substr(0, bracket), list.substr(bracket + 1, end - bracket - 1), list.substr(end + 1)});
}

std::string slurm_master(const TaskContext& here) {
  const std::string port = here.has("MASTER_PORT") ? here.text("MASTER_PORT") : port_of_job(here);
  return concat({here.has("MASTER_ADDR") ? here.text("MASTER_ADDR") : lightning_first_host(here.text("SLURM_NODELIST")),
                 ":", port});
}

std::optional<Problem> slurm_problem(const TaskContext& here) {
  const auto ntasks = here.number("SLURM_NTASKS");
  if (!ntasks)
    return Problem{Outcome::fails, "ValueError: SLURM_NTASKS is not a number", "leave SLURM_NTASKS to Slurm"};
  if (here.is_uneven()) {
    return Problem{
        Outcome::fails,
        "the nodes have different numbers of tasks, and Lightning counts devices x num_nodes: IndexError, or the "
        "peers close the connection",
        "srun --ntasks-per-node=N"};
  }
  if (*ntasks > 1 && !here.has("SLURM_NTASKS_PER_NODE")) {
    return Problem{Outcome::fails,
                   concat({"RuntimeError: You set `--ntasks=", std::to_string(*ntasks),
                           "` in your SLURM bash script, but this variable is not supported"}),
                   "srun --ntasks-per-node=N, or --aml-dist=pytorch, which fills it in"};
  }
  const std::uint64_t devices = devices_wanted(here);
  if (const auto each = here.number("SLURM_NTASKS_PER_NODE"); each && *each != devices) {
    return Problem{Outcome::fails,
                   concat({"ValueError: You set `devices=", std::to_string(devices),
                           "` in Lightning, but the number of tasks per node configured in SLURM `--ntasks-per-node=",
                           std::to_string(*each), "` does not match"}),
                   here.start() == Start::per_node ? "slurm_env=hide, so that Lightning starts the processes"
                                                   : "unset SLURM_NTASKS_PER_NODE before srun"};
  }
  if (const auto nodes = here.number("SLURM_NNODES"); nodes && *nodes != here.nodes()) {
    return Problem{Outcome::fails,
                   concat({"ValueError: SLURM_NNODES=", std::to_string(*nodes), " but the step has ",
                           text::count(here.nodes(), "node")}),
                   "unset SLURM_NNODES before srun"};
  }
  if (here.nodes() > 1 && is_loopback(here.text("MASTER_ADDR"))) {
    return Problem{Outcome::hangs, "MASTER_ADDR is loopback", "unset MASTER_ADDR"};
  }
  if (auto problem = foreign_master(here, here.text("MASTER_ADDR"))) return problem;
  if (*ntasks > 1 && !here.has("MASTER_ADDR")) {
    const std::string host = lightning_first_host(here.text("SLURM_NODELIST"));
    if (auto problem = first_host_problem(here, "Lightning", "SLURM_NODELIST", host, "srun --aml-dist=pytorch")) {
      return problem;
    }
  }
  return here.gpus() == 0 && *ntasks > 1 ? gloo_problem(here) : std::nullopt;
}

FrameworkResult under_slurm(const TaskContext& here) {
  FrameworkResult result{.environment = "SLURMEnvironment",
                         .rank = here.number("SLURM_PROCID"),
                         .size = here.number("SLURM_NTASKS"),
                         .master = slurm_master(here)};
  if (auto problem = slurm_problem(here)) return with(result, std::move(*problem));
  return result;
}

FrameworkResult under_mpi(const TaskContext& here) {
  FrameworkResult result{.environment = "MPIEnvironment"};
  if (auto problem = mpi_problem(here)) {
    if (slurm_is_interactive(here)) {
      problem->reason =
          concat({"in a job named ", here.text("SLURM_JOB_NAME"),
                  " Lightning does not recognise Slurm; mpi4py is installed, so it asks MPI: ", problem->reason});
      problem->remedy = "srun --job-name=train, or srun --mpi=pmix";
    } else {
      problem->reason = concat({"mpi4py is installed, so Lightning asks MPI: ", problem->reason});
    }
    return with(result, std::move(*problem));
  }
  result.rank = here.number("PMIX_RANK");
  result.size = here.tasks();
  const std::uint64_t wanted = here.nodes() * devices_wanted(here);
  if (*result.size < wanted) {
    return with(result, {Outcome::alone,
                         concat({"mpi4py is installed and each launcher is a rank of MPI: ",
                                 std::to_string(*result.size), " processes train instead of ", std::to_string(wanted)}),
                         "slurm_env=hide, or srun --mpi=none"});
  }
  if (here.gpus() == 0) {
    if (auto problem = gloo_problem(here)) return with(result, std::move(*problem));
  }
  return result;
}

/// Without LOCAL_RANK each task considers itself the first process of its node and starts the others.
Problem many_starters(const TaskContext& here) {
  const std::string what = concat({"each of ", text::count(here.tasks_here(), "task"),
                                   " of this node takes itself for the first process and starts the others"});
  const char* const remedy = "srun --aml-dist=pytorch";
  // If each has a different port they do not meet; if all have the same they collide.
  if (here.nodes() == 1 && !here.has("MASTER_PORT")) return {Outcome::alone, what, remedy};
  return {Outcome::fails, what, remedy};
}

/// Lightning starts the other processes of the node itself, unless LOCAL_RANK is set.
FrameworkResult under_lightning(const TaskContext& here) {
  const std::uint64_t devices = devices_wanted(here);
  FrameworkResult result{
      .environment = "LightningEnvironment", .size = here.nodes() * devices, .master = here.master()};
  const bool started = here.has("LOCAL_RANK");
  if (started) result.rank = here.number("NODE_RANK").value_or(0) * devices + here.number("LOCAL_RANK").value_or(0);
  if (here.is_uneven()) {
    return with(result,
                {Outcome::fails, "the nodes have different numbers of tasks, and Lightning counts devices x num_nodes",
                 "srun --ntasks-per-node=N"});
  }
  if (here.nodes() > 1 && (!here.has("MASTER_ADDR") || is_loopback(here.text("MASTER_ADDR")))) {
    return with(result, {Outcome::hangs, "without MASTER_ADDR each node waits for the others on 127.0.0.1",
                         "srun --aml-dist=pytorch,launch=per-node"});
  }
  if (!started && here.tasks_here() > 1) return with(result, many_starters(here));
  if (here.nodes() > 1 && !here.has("NODE_RANK") && !here.has("GROUP_RANK")) {
    return with(result, {Outcome::hangs, "without NODE_RANK every node is the first one",
                         "srun --aml-dist=pytorch,launch=per-node"});
  }
  if (here.gpus() == 0 && *result.size > 1) {
    if (auto problem = gloo_problem(here)) return with(result, std::move(*problem));
  }
  return result;
}

FrameworkResult under_torchrun(const TaskContext& here) {
  FrameworkResult result{.environment = "TorchElasticEnvironment"};
  for (const std::string_view name : {"RANK", "WORLD_SIZE", "LOCAL_RANK"}) {
    if (here.has(name)) continue;
    return with(result,
                {Outcome::fails, concat({"KeyError: '", name, "': TORCHELASTIC_RUN_ID is set without torchrun"}),
                 "unset TORCHELASTIC_RUN_ID"});
  }
  result.rank = here.number("RANK");
  result.size = here.number("WORLD_SIZE");
  result.master = here.master();
  if (auto problem = meeting_problem(here)) return with(result, std::move(*problem));
  return result;
}

/// Follows from the source; not tried under LSF.
bool lsf_is_there(const TaskContext& here) {
  return here.has("LSB_JOBID") && here.has("LSB_DJOB_RANKFILE") && here.has("JSM_NAMESPACE_LOCAL_RANK") &&
         here.has("JSM_NAMESPACE_SIZE");
}

}  // namespace

FrameworkResult examine_lightning(const TaskContext& here) {
  if (here.has("TORCHELASTIC_RUN_ID")) return under_torchrun(here);
  if (here.has("SLURM_NTASKS") && !slurm_is_interactive(here)) return under_slurm(here);
  if (lsf_is_there(here)) {
    return with({.environment = "LSFEnvironment"},
                {Outcome::warns, "LSF's variables are set, and Lightning follows them", "unset LSB_DJOB_RANKFILE"});
  }
  const bool asks_mpi = here.machine().mpi4py && !here.machine().mpi4py->empty();
  if (asks_mpi) {
    const auto problem = mpi_problem(here);
    const bool alone = here.has_pmix() ? here.tasks() == 1 : problem && problem->outcome == Outcome::alone;
    const bool single = !problem && !here.has_pmix();
    if (!alone && !single) return under_mpi(here);
  }
  return under_lightning(here);
}

}  // namespace amldist::doctor
