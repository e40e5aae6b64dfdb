#include "trace/record/settings.hpp"

#include <array>

namespace amldist::trace {
namespace {

constexpr auto table = std::to_array<SettingDescription>({
    {variable::nccl_profiler, "the libraries of `aml-dist trace`", "path", "none",
     "another profiler for NCCL, which gets the events that it asks for; the plugin puts the user's "
     "NCCL_PROFILER_PLUGIN "
     "here"},
    {variable::trace, "the libraries of `aml-dist trace`", "JOBID.STEP", "none: nothing is recorded",
     "the step whose calls are recorded; the plugin sets it under `trace` and removes any other"},
    {variable::trace_folder, "`amldist_init()`, `aml-dist trace`", "path, `off`, `none`", "`/dev/shm/aml-dist-UID`",
     "folder of the flight recorders; `off` and `none`: no recorder"},
});

}  // namespace

std::span<const SettingDescription> setting_descriptions() noexcept { return table; }

}  // namespace amldist::trace
