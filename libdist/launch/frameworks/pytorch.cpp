// PyTorch, per process: torch.distributed's env:// reads MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE; torchrun's
// names for node rank and node count are set too. Per node: torchrun and torch.distributed.launch take the defaults of
// their flags from PET_* (torch/distributed/argparse_util.py).
#include <algorithm>

#include "launch/frameworks/translator.hpp"
#include "launch/frameworks/visible_gpus.hpp"

namespace amldist::launch {
namespace {

/// The value for torchrun's --nproc-per-node.
std::string processes_per_node(const TaskFacts& task) {
  using Source = ProcessesPerNode::Source;
  switch (task.spec.nproc_per_node.source) {
    case Source::number:
      return std::to_string(task.spec.nproc_per_node.number);
    case Source::automatic:
      return "auto";
    case Source::gpu:
      return "gpu";
    case Source::cpu:
      return "cpu";
    case Source::node_default:
      break;
  }
  return std::to_string(std::max(1U, visible_gpus(task.inherited).value_or(1)));
}

void set_launcher_defaults(const TaskFacts& task, EnvironmentPatch& patch) {
  patch.set("PET_NNODES", task.identity.nodes);
  patch.set("PET_NODE_RANK", task.identity.node_rank);
  patch.set("PET_NPROC_PER_NODE", processes_per_node(task));
  patch.set("PET_MASTER_ADDR", task.rendezvous.address);
  patch.set("PET_MASTER_PORT", task.rendezvous.port);
}

}  // namespace

Result<void> translate_pytorch(const TaskFacts& task, EnvironmentPatch& patch) {
  if (!task.spec.backend.empty()) patch.set("AMLDIST_BACKEND", task.spec.backend);
  if (task.spec.launch == Launch::per_node) {
    set_launcher_defaults(task, patch);
  } else {
    patch.set("GROUP_RANK", task.identity.node_rank);
    patch.set("GROUP_WORLD_SIZE", task.identity.nodes);
  }
  return {};
}

}  // namespace amldist::launch
