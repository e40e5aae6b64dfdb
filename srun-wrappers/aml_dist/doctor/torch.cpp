// torch.distributed with env:// (torch/distributed/rendezvous.py, 2.15 and 1.13): four variables, then rank 0 listens
// on MASTER_PORT and the others connect.
#include <array>

#include "aml_dist/doctor/rules.hpp"
#include "core/text.hpp"

namespace amldist::doctor {
namespace {

using text::concat;

std::optional<Trouble> unreadable_number(const Surroundings& here) {
  for (const std::string_view name : {"RANK", "WORLD_SIZE", "MASTER_PORT"}) {
    if (here.number(name)) continue;
    return Trouble{Verdict::fails,
                   concat({"ValueError: ", name, " is ", text::quote(here.text(name)), ", not a number"}),
                   concat({"leave ", name, " to --aml-dist"})};
  }
  return std::nullopt;
}

/// A world of one process in each task: rank 0 of each wants to listen at the master.
Trouble own_world(const Surroundings& here) {
  const std::string what = concat({"WORLD_SIZE=1 in each of ", text::count(here.tasks(), "task")});
  const char* const remedy = "leave WORLD_SIZE to --aml-dist";
  if (is_loopback(here.text("MASTER_ADDR"))) return {Verdict::alone, what, remedy};
  return {Verdict::fails, concat({what, ": each wants to listen on the one MASTER_ADDR:MASTER_PORT"}), remedy};
}

/// Numbers against what Slurm says about the step. Under a launcher the ranks are the launcher's.
std::optional<Trouble> wrong_numbers(const Surroundings& here) {
  const std::uint64_t size = *here.number("WORLD_SIZE");
  const std::uint64_t rank = *here.number("RANK");
  if (rank >= size) {
    return Trouble{Verdict::hangs,
                   concat({"RANK=", std::to_string(rank), " but WORLD_SIZE=", std::to_string(size),
                           ": the others wait for a rank that nobody has"}),
                   "leave both to --aml-dist"};
  }
  if (!here.in_step() || here.start() == Start::torchrun) return std::nullopt;
  if (size > here.tasks()) {
    return Trouble{Verdict::hangs,
                   concat({"WORLD_SIZE=", std::to_string(size), " but the step has ", text::count(here.tasks(), "task"),
                           ": the others never come"}),
                   "leave WORLD_SIZE to --aml-dist"};
  }
  if (size == 1 && here.tasks() > 1) return own_world(here);
  if (const auto slurm = here.number("SLURM_PROCID"); slurm && *slurm != rank) {
    return Trouble{Verdict::hangs,
                   concat({"RANK=", std::to_string(rank), " in task ", std::to_string(*slurm),
                           ": two tasks with one rank, and a rank that nobody has"}),
                   "leave RANK to --aml-dist"};
  }
  return std::nullopt;
}

std::optional<Trouble> unreachable_master(const Surroundings& here) {
  const std::string address = here.text("MASTER_ADDR");
  if (here.nodes() > 1 && is_loopback(address)) {
    return Trouble{Verdict::hangs, concat({"MASTER_ADDR=", address, " is another machine on each node"}),
                   "unset MASTER_ADDR: --aml-dist gives the address of rank 0's host"};
  }
  const std::uint64_t port = *here.number("MASTER_PORT");
  if (port > 65535) {
    return Trouble{Verdict::fails, concat({"MASTER_PORT=", std::to_string(port), " is no port"}), "unset MASTER_PORT"};
  }
  if (port == 0 && *here.number("WORLD_SIZE") > 1) {
    return Trouble{Verdict::hangs, "MASTER_PORT=0: rank 0 takes a port that the others do not know",
                   "unset MASTER_PORT"};
  }
  const bool agent = here.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (agent && here.start() != Start::torchrun) {
    return Trouble{Verdict::hangs, "TORCHELASTIC_USE_AGENT_STORE=True, so that nobody listens: there is no torchrun",
                   "unset TORCHELASTIC_USE_AGENT_STORE"};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Trouble> meeting_trouble(const Surroundings& here) {
  if (auto trouble = unreadable_number(here)) return trouble;
  if (auto trouble = wrong_numbers(here)) return trouble;
  if (auto trouble = unreachable_master(here)) return trouble;
  if (here.gpus() == 0 && *here.number("WORLD_SIZE") > 1) return gloo_trouble(here);
  return std::nullopt;
}

Finding examine_torch(const Surroundings& here) {
  constexpr std::array<std::string_view, 4> wanted = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
  Finding finding{.environment = "env://"};
  for (const std::string_view name : wanted) {
    if (!here.text(name).empty()) continue;
    return with(finding,
                {Verdict::fails,
                 concat({"ValueError: Error initializing torch.distributed using env:// rendezvous: environment "
                         "variable ",
                         name, " expected, but not set"}),
                 here.start() == Start::per_node ? "start it with torchrun, or use launch=per-process"
                                                 : "srun --aml-dist=pytorch"});
  }
  finding.rank = here.number("RANK");
  finding.size = here.number("WORLD_SIZE");
  finding.master = here.master();
  if (auto trouble = meeting_trouble(here)) return with(finding, std::move(*trouble));
  return finding;
}

}  // namespace amldist::doctor
