// PyTorch-Ignite's idist (ignite/distributed/comp_models/native.py, 0.5): under Slurm the names of PyTorch must be
// Slurm's numbers, or it raises.
#include <algorithm>
#include <array>

#include "aml_dist/doctor/rules.hpp"
#include "core/hostlist.hpp"
#include "core/text.hpp"

namespace amldist::doctor {
namespace {

using text::concat;

constexpr const char* by_hand =
    "call torch.distributed.init_process_group() before idist, which then takes what is there, or start every process "
    "with srun";

/// Scripts under torchrun can do without idist.initialize(), so that is no verdict on the step.
Verdict refusal(const Surroundings& here) { return here.start() == Start::torchrun ? Verdict::warns : Verdict::fails; }

std::optional<Trouble> missing_slurm(const Surroundings& here) {
  constexpr std::array<std::string_view, 5> names = {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS",
                                                     "SLURM_JOB_NODELIST", "SLURM_JOB_NUM_NODES"};
  for (const std::string_view name : names) {
    if (here.has(name)) continue;
    return Trouble{refusal(here),
                   concat({"idist.initialize() raises RuntimeError: SLURM distributed configuration is missing '", name,
                           "' in env variables"}),
                   here.start() == Start::torchrun ? by_hand : "run it with srun"};
  }
  return std::nullopt;
}

std::optional<Trouble> differing(const Surroundings& here) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> pairs = {
      {{"RANK", "SLURM_PROCID"}, {"LOCAL_RANK", "SLURM_LOCALID"}, {"WORLD_SIZE", "SLURM_NTASKS"}}};
  const bool one_node = here.number("SLURM_JOB_NUM_NODES").value_or(1) == 1;
  for (const auto& [torch, slurm] : pairs) {
    const auto ours = here.number(torch);
    const auto theirs = here.number(slurm);
    if (!ours || !theirs || ours == theirs || (one_node && *ours > *theirs)) continue;
    return Trouble{refusal(here),
                   concat({"idist.initialize() raises RuntimeError: ", torch, ": ", std::to_string(*ours), " vs ",
                           std::to_string(*theirs), " of ", slurm}),
                   here.start() == Start::torchrun ? by_hand : concat({"leave ", torch, " to --aml-dist"})};
  }
  return std::nullopt;
}

/// With one of PyTorch's names missing it takes none of them, but the first host of the job and a port from its number.
Finding by_own_rule(const Surroundings& here, Finding finding) {
  const auto hosts = Hostlist::parse(here.text("SLURM_JOB_NODELIST"));
  if (!hosts || hosts->empty()) return finding;
  const std::string host = hosts->at(0);
  finding.master = concat({host, ":", port_of_job(here)});
  if (here.tasks() == 1) return finding;
  if (auto trouble = first_host_trouble(here, "Ignite", "SLURM_JOB_NODELIST", host, "srun --aml-dist=pytorch")) {
    return with(finding, std::move(*trouble));
  }
  if (auto trouble = here.gpus() == 0 ? gloo_trouble(here) : std::nullopt) return with(finding, std::move(*trouble));
  return finding;
}

}  // namespace

Finding examine_ignite(const Surroundings& here) {
  if (!here.has("SLURM_JOB_ID")) return examine_torch(here);
  Finding finding{.environment = "Slurm",
                  .rank = here.number("SLURM_PROCID"),
                  .size = here.number("SLURM_NTASKS"),
                  .master = here.master()};
  if (auto trouble = missing_slurm(here)) return with(finding, std::move(*trouble));
  constexpr std::array<std::string_view, 5> five = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
  if (!std::ranges::all_of(five, [&](std::string_view name) { return here.has(name); })) {
    return by_own_rule(here, std::move(finding));
  }
  if (auto trouble = differing(here)) return with(finding, std::move(*trouble));
  if (auto trouble = meeting_trouble(here)) return with(finding, std::move(*trouble));
  return finding;
}

}  // namespace amldist::doctor
