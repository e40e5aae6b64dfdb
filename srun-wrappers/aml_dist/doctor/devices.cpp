// The GPUs that a task sees compared with LOCAL_RANK, and the memory that a process may pin for RDMA. Not tried on such
// hardware: tests/tools/test_doctor.py gives the rules what a task would see.
#include <limits>

#include "aml_dist/doctor/rules.hpp"
#include "base/text/text.hpp"
#include "launch/frameworks/advice.hpp"
#include "launch/frameworks/visible_gpus.hpp"

namespace amldist::doctor {
namespace {
using text::concat;
}

FrameworkResult examine_gpus(const TaskContext& here) {
  const std::uint32_t gpus = here.gpus();
  const auto tasks = static_cast<std::uint32_t>(here.tasks_here());
  FrameworkResult result{.environment = gpus == 0 ? "no GPU" : text::count(gpus, "GPU")};
  launch::Spec spec;
  spec.kind = here.kind().value_or(launch::Kind::pytorch);
  if (here.start() == Start::per_node) spec.launch = launch::Launch::per_node;
  auto advice = launch::unseen_gpus(here.environment());
  if (!advice) advice = gpu_advice(spec, tasks, gpus);
  if (!advice) {
    const std::string& misplaced = here.machine().misplaced;
    const std::size_t remedy = misplaced.rfind(": ");
    if (misplaced.empty()) return result;
    return with(result, {Outcome::warns, misplaced.substr(0, remedy), misplaced.substr(remedy + 2)});
  }
  // One GPU may be bound to each task; a few for more tasks are shared, which NCCL refuses.
  const bool shared = gpus > 1 && gpus < tasks;
  const std::size_t remedy = advice->find(": ");
  return with(result,
              {shared ? Outcome::fails : Outcome::warns, advice->substr(0, remedy), advice->substr(remedy + 2)});
}

FrameworkResult examine_locked_memory(const TaskContext& here) {
  const auto limit = here.machine().locked_memory;
  if (!limit || here.machine().has_rdma != true) {
    return with(
        {}, {Outcome::skip, here.machine().has_rdma ? "no RDMA device here" : "the limits are a running task's", {}});
  }
  if (*limit == std::numeric_limits<std::uint64_t>::max()) return {.environment = "unlimited"};
  FrameworkResult result{.environment = concat({std::to_string(*limit / 1024), " KiB"})};
  constexpr std::uint64_t too_little = 64ULL << 20;  // NCCL and UCX pin tens of MiB for each connection
  return with(result,
              {*limit < too_little ? Outcome::fails : Outcome::warns,
               "ulimit -l is finite, and RDMA pins the memory that it sends: ibv_reg_mr: Cannot allocate memory",
               "LimitMEMLOCK=infinity for slurmd, PropagateResourceLimitsExcept=MEMLOCK in slurm.conf"});
}

}  // namespace amldist::doctor
