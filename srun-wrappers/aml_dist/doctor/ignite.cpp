// PyTorch-Ignite's idist (ignite/distributed/comp_models/native.py, 0.5): under Slurm the names of PyTorch must be
// Slurm's numbers, or it raises.
#include <algorithm>
#include <array>

#include "aml_dist/doctor/rules.hpp"
#include "base/text/hostlist.hpp"
#include "base/text/text.hpp"

namespace amldist::doctor {
namespace {

using text::concat;

constexpr const char* by_hand =
    "call torch.distributed.init_process_group() before idist, which then uses that group, or start every process "
    "with srun";

/// Scripts under torchrun can do without idist.initialize(), so a failure of it does not concern the step.
Outcome refusal(const TaskContext& here) { return here.start() == Start::torchrun ? Outcome::warns : Outcome::fails; }

std::optional<Problem> missing_slurm(const TaskContext& here) {
  constexpr std::array<std::string_view, 5> names = {"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS",
                                                     "SLURM_JOB_NODELIST", "SLURM_JOB_NUM_NODES"};
  for (const std::string_view name : names) {
    if (here.has(name)) continue;
    return Problem{refusal(here),
                   concat({"idist.initialize() raises RuntimeError: SLURM distributed configuration is missing '", name,
                           "' in env variables"}),
                   here.start() == Start::torchrun ? by_hand : "run it with srun"};
  }
  return std::nullopt;
}

std::optional<Problem> differing(const TaskContext& here) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> pairs = {
      {{"RANK", "SLURM_PROCID"}, {"LOCAL_RANK", "SLURM_LOCALID"}, {"WORLD_SIZE", "SLURM_NTASKS"}}};
  const bool one_node = here.number("SLURM_JOB_NUM_NODES").value_or(1) == 1;
  for (const auto& [torch, slurm] : pairs) {
    const auto ours = here.number(torch);
    const auto theirs = here.number(slurm);
    if (!ours || !theirs || ours == theirs || (one_node && *ours > *theirs)) continue;
    return Problem{refusal(here),
                   concat({"idist.initialize() raises RuntimeError: ", torch, ": ", std::to_string(*ours), " vs ",
                           std::to_string(*theirs), " of ", slurm}),
                   here.start() == Start::torchrun ? by_hand : concat({"leave ", torch, " to --aml-dist"})};
  }
  return std::nullopt;
}

/// If one of PyTorch's names is missing, it ignores the others and uses the first host of the job and a port from its
/// number.
FrameworkResult by_own_rule(const TaskContext& here, FrameworkResult result) {
  const auto hosts = Hostlist::parse(here.text("SLURM_JOB_NODELIST"));
  if (!hosts || hosts->empty()) return result;
  const std::string host = hosts->at(0);
  result.master = concat({host, ":", port_of_job(here)});
  if (here.tasks() == 1) return result;
  if (auto problem = first_host_problem(here, "Ignite", "SLURM_JOB_NODELIST", host, "srun --aml-dist=pytorch")) {
    return with(result, std::move(*problem));
  }
  if (auto problem = here.gpus() == 0 ? gloo_problem(here) : std::nullopt) return with(result, std::move(*problem));
  return result;
}

}  // namespace

FrameworkResult examine_ignite(const TaskContext& here) {
  if (!here.has("SLURM_JOB_ID")) return examine_torch(here);
  FrameworkResult result{.environment = "Slurm",
                         .rank = here.number("SLURM_PROCID"),
                         .size = here.number("SLURM_NTASKS"),
                         .master = here.master()};
  if (auto problem = missing_slurm(here)) return with(result, std::move(*problem));
  constexpr std::array<std::string_view, 5> five = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
  if (!std::ranges::all_of(five, [&](std::string_view name) { return here.has(name); })) {
    return by_own_rule(here, std::move(result));
  }
  if (auto problem = differing(here)) return with(result, std::move(*problem));
  if (auto problem = meeting_problem(here)) return with(result, std::move(*problem));
  return result;
}

}  // namespace amldist::doctor
