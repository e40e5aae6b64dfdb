// MPI jobs of Azure ML: Open MPI's names (srun sets none of them, and MPI itself ignores them) and the names of Azure
// Batch that samples, DeepSpeed and the Lightning helper read.
#include "base/text/text.hpp"
#include "launch/frameworks/translator.hpp"

namespace amldist::launch {
namespace {

/// Hosts in NODE_RANK order: the master comes first.
std::string host_list(const Placement& placement) {
  std::string out;
  for (std::uint32_t i = 0; i < placement.map.nodes(); ++i) {
    if (i > 0) out += ',';
    out += placement.hosts.at(placement.map.node_at(i));
  }
  return out;
}

}  // namespace

Result<void> translate_mpi(const TaskFacts& task, EnvironmentPatch& patch) {
  patch.set("OMPI_COMM_WORLD_RANK", task.identity.rank);
  patch.set("OMPI_COMM_WORLD_SIZE", task.identity.size);
  patch.set("OMPI_COMM_WORLD_LOCAL_RANK", task.identity.local_rank);
  patch.set("OMPI_COMM_WORLD_LOCAL_SIZE", task.identity.local_size);
  patch.set("MASTER_ADDRESS", task.rendezvous.address);
  patch.set("AZ_BATCHAI_MPI_MASTER_NODE", task.rendezvous.address);
  patch.set("AZ_BATCH_HOST_LIST", host_list(task.placement));
  patch.set("AZUREML_NODE_COUNT", task.identity.nodes);
  patch.set("AZUREML_CR_NODE_RANK", task.identity.node_rank);
  return {};
}

}  // namespace amldist::launch
