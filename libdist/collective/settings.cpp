#include "collective/settings.hpp"

#include <array>
#include <utility>

#include "trace/record/settings.hpp"

namespace amldist::collective {
namespace {

using setting::read_word;

constexpr auto table = std::to_array<SettingDescription>({
    {variable::instruction_set, "`amldist_init()`", "`plain`, `avx2`, `avx512`", "the best that the processor has",
     "highest instruction set that reductions use"},
    {variable::nccl_library, "first buffer on a GPU, `aml-dist check --bench`", "path",
     "the one that the process has loaded, else `libnccl.so.2`", "NCCL library for buffers on a GPU"},
    {variable::single_copy, "`amldist_init()`", "`on`, `off`, `always`", "`on`",
     "whether long messages between ranks of a node are copied once, by the kernel, where it allows that "
     "(`process_vm_readv`); `always`: reductions too where measurement would not choose it. Messages between ranks "
     "that share processors are copied once from 1 MiB on, and from 256 KiB on if they follow another one in the same "
     "direction. `off` or `always` on one rank holds for all"},
});

}  // namespace

std::span<const SettingDescription> setting_descriptions() noexcept { return table; }

Result<Settings> Settings::read(const EnvironmentReader& environment) {
  Settings out;
  auto world = world::Settings::read(environment);
  if (!world) return world.error();
  out.world = std::move(*world);
  if (auto status = read_word(
          environment, variable::single_copy, out.single_copy,
          {{"on", SingleCopyPolicy::on}, {"off", SingleCopyPolicy::off}, {"always", SingleCopyPolicy::always}});
      !status)
    return status.error();
  if (auto status = read_word(
          environment, variable::instruction_set, out.instruction_set,
          {{"plain", InstructionSet::plain}, {"avx2", InstructionSet::avx2}, {"avx512", InstructionSet::avx512}});
      !status)
    return status.error();
  out.nccl_library = environment(variable::nccl_library).value_or("");
  out.trace_folder = environment(trace::variable::trace_folder).value_or("");
  return out;
}

}  // namespace amldist::collective
