#include "launch/frameworks/advice.hpp"

#include "base/text/text.hpp"
#include "launch/frameworks/visible_gpus.hpp"

namespace amldist::launch {
namespace {
using text::concat;
}

std::optional<std::string> gpu_advice(const Spec& spec, const Identity& identity,
                                      const EnvironmentReader& environment) {
  if (auto unseen = unseen_gpus(environment)) return unseen;
  return gpu_advice(spec, identity.local_size, visible_gpus(environment).value_or(0));
}

std::optional<std::string> gpu_advice(const Spec& spec, std::uint32_t tasks, std::uint32_t gpus) {
  // A launcher is one task and uses all GPUs that it sees. JAX gets its devices explicitly.
  if (spec.launch == Launch::per_node || spec.kind == Kind::jax) return std::nullopt;
  if (gpus == 0 || gpus == tasks) return std::nullopt;
  const std::string sees = concat({"each task sees ", text::count(gpus, "GPU")});
  const std::string last = std::to_string(tasks - 1);
  if (gpus == 1) {
    return concat({sees, ", numbered 0, but LOCAL_RANK goes up to ", last,
                   ": use device 0 in every task, or start without --gpus-per-task and --gpu-bind"});
  }
  if (gpus < tasks) {
    return concat({sees, " but LOCAL_RANK goes up to ", last, ": use --ntasks-per-node=", std::to_string(gpus),
                   " or more GPUs per node"});
  }
  return concat({sees, " but a node has ", text::count(tasks, "task"), ": with one GPU per task, ",
                 std::to_string(gpus - tasks), " stay idle; use --ntasks-per-node=", std::to_string(gpus)});
}

std::optional<std::string> mpi_advice(const Spec& spec, const Identity& identity,
                                      const EnvironmentReader& environment) {
  if (spec.kind != Kind::mpi || spec.launch == Launch::per_node || identity.size == 1) return std::nullopt;
  if (environment("PMIX_RANK") || environment("PMI_RANK")) return std::nullopt;
  return concat({"this step has no PMIx, so MPI programs would fail in MPI_Init or run as ",
                 std::to_string(identity.size), " jobs of size 1: use srun --mpi=pmix"});
}

}  // namespace amldist::launch
