#include "launch/option/settings.hpp"

#include <array>

namespace amldist::launch {
namespace {

constexpr auto table = std::to_array<SettingDescription>({
    {variable::rdma, "`amldist_init()`", "`require`, `prefer`, `off`", "`off`",
     "policy for the verification of the fabric; the plugin sets it under `rdma=require` and `prefer` with several "
     "nodes ([fabric.md](fabric.md))"},
    {variable::rdma_sku, "`amldist_init()`", "name of an SKU", "none",
     "what the nodes should have; the plugin sets it with `AMLDIST_RDMA`"},
    {variable::secret, "`amldist_init()`", "`require`, `prefer`", "`prefer`",
     "`require` refuses a world whose ranks have no secret, or got it over PMIx, MPI or a store; the plugin sets it "
     "where "
     "the site has `secret=require`"},
    {variable::step_secret, "`amldist_init()`, `aml-dist check`", "64 hexadecimal digits", "none",
     "secret by which the processes of a step recognise each other; the plugin makes one for every step and replaces "
     "any other. As private as the environment"},
    {variable::stop_file, "`amldist_should_stop()`", "a path", "none",
     "file that appears on the node when the step is to stop; the plugin sets it under `stop=` ([stop.md](stop.md))"},
    {variable::stop_signal, "`amldist_should_stop()`", "a signal's number", "none",
     "signal that means the same; the plugin sets it under `stop=SECONDS@SIGNAL`"},
});

}  // namespace

std::span<const SettingDescription> setting_descriptions() noexcept { return table; }

}  // namespace amldist::launch
