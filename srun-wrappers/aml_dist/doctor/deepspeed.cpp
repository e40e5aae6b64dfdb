// DeepSpeed (deepspeed/comm/comm.py, 0.19): if all five of PyTorch's names are set it looks no further; else Azure ML's
// names, if AZUREML_EXPERIMENT_ID is set, else MPI through mpi4py.
#include <algorithm>
#include <array>

#include "aml_dist/doctor/rules.hpp"
#include "base/text/text.hpp"

namespace amldist::doctor {
namespace {

using text::concat;

/// The first missing name of its Azure ML path, in the order in which it looks.
std::optional<std::string_view> missing_of_azureml(const TaskContext& here) {
  const bool one_node = here.number("OMPI_COMM_WORLD_LOCAL_SIZE") == here.number("OMPI_COMM_WORLD_SIZE");
  const std::array<std::string_view, 6> names = {
      "OMPI_COMM_WORLD_RANK",       "OMPI_COMM_WORLD_SIZE",
      "OMPI_COMM_WORLD_LOCAL_SIZE", one_node ? "AZ_BATCHAI_MPI_MASTER_NODE" : "AZ_BATCH_MASTER_NODE",
      "NCCL_SOCKET_IFNAME",         "OMPI_COMM_WORLD_LOCAL_RANK"};
  const auto* const found = std::ranges::find_if(names, [&](std::string_view name) { return !here.has(name); });
  return found == names.end() ? std::nullopt : std::optional(*found);
}

FrameworkResult on_azureml(const TaskContext& here) {
  FrameworkResult result{.environment = "Azure ML",
                         .rank = here.number("OMPI_COMM_WORLD_RANK"),
                         .size = here.number("OMPI_COMM_WORLD_SIZE")};
  if (const auto missing = missing_of_azureml(here)) {
    return with(result,
                {Outcome::fails, concat({"KeyError: '", *missing, "' (AZUREML_EXPERIMENT_ID is set)"}),
                 *missing == "NCCL_SOCKET_IFNAME" ? "export NCCL_SOCKET_IFNAME, or unset AZUREML_EXPERIMENT_ID"
                                                  : "srun --mpi=pmix --aml-dist=mpi, or unset AZUREML_EXPERIMENT_ID"});
  }
  const bool one_node = here.number("OMPI_COMM_WORLD_LOCAL_SIZE") == result.size;
  const std::string node = here.text("AZ_BATCH_MASTER_NODE");
  const std::string address = one_node ? here.text("AZ_BATCHAI_MPI_MASTER_NODE") : node.substr(0, node.find(':'));
  const std::string port = one_node ? "54965" : here.has("MASTER_PORT") ? here.text("MASTER_PORT") : "6105";
  result.master = concat({address, ":", port});
  const TaskContext seen = here.changed({{"RANK", here.text("OMPI_COMM_WORLD_RANK")},
                                         {"WORLD_SIZE", here.text("OMPI_COMM_WORLD_SIZE")},
                                         {"MASTER_ADDR", address},
                                         {"MASTER_PORT", port}});
  if (auto problem = meeting_problem(seen)) return with(result, std::move(*problem));
  return result;
}

FrameworkResult through_mpi(const TaskContext& here, std::string_view missing) {
  FrameworkResult result{.environment = "mpi4py"};
  const std::string why = concat({missing, " is not set, so DeepSpeed asks MPI: "});
  if (here.machine().mpi4py && here.machine().mpi4py->empty()) {
    return with(result, {Outcome::fails, concat({why, "ModuleNotFoundError: No module named 'mpi4py'"}),
                         "srun --aml-dist=pytorch"});
  }
  if (auto problem = mpi_problem(here)) {
    problem->reason = why + problem->reason;
    problem->remedy = "srun --aml-dist=pytorch, or --mpi=pmix";
    return with(result, std::move(*problem));
  }
  result.rank = here.number("PMIX_RANK");
  result.size = here.tasks();
  return result;
}

std::optional<Problem> local_problem(const TaskContext& here) {
  const auto local = here.number("LOCAL_RANK");
  const auto ompi = here.number("OMPI_COMM_WORLD_LOCAL_RANK");
  if (local && ompi && *local != *ompi) {
    return Problem{Outcome::fails,
                   concat({"AssertionError: LOCAL_RANK (", std::to_string(*local), ") != OMPI_COMM_WORLD_LOCAL_RANK (",
                           std::to_string(*ompi), "), not sure how to proceed"}),
                   "leave both to --aml-dist"};
  }
  if (here.nodes() > 1 && here.has("LOCAL_SIZE") && here.number("LOCAL_SIZE") == here.number("WORLD_SIZE")) {
    return Problem{Outcome::hangs, "LOCAL_SIZE equals WORLD_SIZE, so that it uses memory that the nodes do not share",
                   "unset LOCAL_SIZE"};
  }
  if (here.gpus() == 0 && here.machine().has_build_tools == false) {
    return Problem{
        Outcome::fails,
        "on CPUs it compiles deepspeed_shm_comm at its first use: Unable to JIT load the op due to ninja not being "
        "installed",
        "install ninja and g++ on every node"};
  }
  return std::nullopt;
}

}  // namespace

FrameworkResult examine_deepspeed(const TaskContext& here) {
  constexpr std::array<std::string_view, 5> five = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK"};
  const auto* const missing = std::ranges::find_if(five, [&](std::string_view name) { return !here.has(name); });
  FrameworkResult result;
  if (missing == five.end()) {
    result = examine_torch(here);
  } else if (here.has("AZUREML_EXPERIMENT_ID") && !here.has("DLTS_JOB_ID")) {
    result = on_azureml(here);
  } else {
    result = through_mpi(here, *missing);
  }
  if (result.outcome != Outcome::fine) return result;
  if (auto problem = local_problem(here)) return with(result, std::move(*problem));
  return result;
}

}  // namespace amldist::doctor
