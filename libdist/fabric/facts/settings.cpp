#include "fabric/facts/settings.hpp"

#include <array>

#include "launch/option/settings.hpp"

namespace amldist::fabric {
namespace {

constexpr auto table = std::to_array<SettingDescription>({
    {variable::cuda_library, "`aml-dist check --bench`", "path", "`libcuda.so.1`",
     "the CUDA driver, for writes from a GPU's memory and for NCCL's bandwidth"},
    {variable::verbs_library, "`amldist_init()`, `aml-dist check`", "path", "`libibverbs.so.1`",
     "library by which RDMA devices are opened"},
    {variable::nvml_library, "`aml-dist check`", "path", "`libnvidia-ml.so.1`; with AMD's GPUs `librocm_smi64.so`",
     "library that is asked about the GPUs: NVML, or with AMD's GPUs ROCm SMI"},
});

}  // namespace

std::span<const SettingDescription> setting_descriptions() noexcept { return table; }

Result<WorldPolicy> WorldPolicy::read(const EnvironmentReader& environment) {
  WorldPolicy out;
  using launch::RdmaPolicy;
  if (auto status = setting::read_word(
          environment, launch::variable::rdma, out.rdma,
          {{"require", RdmaPolicy::require}, {"prefer", RdmaPolicy::prefer}, {"off", RdmaPolicy::off}});
      !status)
    return status.error();
  out.sku = environment(launch::variable::rdma_sku).value_or("");
  return out;
}

}  // namespace amldist::fabric
