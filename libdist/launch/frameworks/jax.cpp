// JAX: jax.distributed.initialize() takes process count and id from Slurm's own variables. It must be told the
// coordinator: it would guess the first host of the list, which is wrong for host files.
#include "base/text/text.hpp"
#include "launch/frameworks/translator.hpp"
#include "launch/frameworks/visible_gpus.hpp"

namespace amldist::launch {
namespace {

/// Devices 0..count-1: a task numbers the GPUs that are bound to it alone from 0.
std::string first_devices(std::uint32_t count) {
  std::string out;
  for (std::uint32_t i = 0; i < count; ++i) out += text::concat({i == 0 ? "" : ",", std::to_string(i)});
  return out;
}

}  // namespace

Result<void> translate_jax(const TaskFacts& task, EnvironmentPatch& patch) {
  patch.set("JAX_COORDINATOR_ADDRESS",
            text::concat({task.rendezvous.address, ":", std::to_string(task.rendezvous.port)}));
  // Without this, JAX uses device LOCALID, which does not exist where a task sees only its own GPUs.
  const auto gpus = visible_gpus(task.inherited);
  const bool bound_per_task = gpus && *gpus > 0 && (*gpus == 1 || task.inherited("SLURM_GPUS_PER_TASK"));
  if (bound_per_task) patch.set("JAX_LOCAL_DEVICE_IDS", first_devices(*gpus));
  return {};
}

}  // namespace amldist::launch
