// torch.distributed with env:// (torch/distributed/rendezvous.py, 2.15 and 1.13): four variables, then rank 0 listens
// on MASTER_PORT and the others connect.
#include <array>

#include "aml_dist/doctor/rules.hpp"
#include "base/text/text.hpp"

namespace amldist::doctor {
namespace {

using text::concat;

std::optional<Problem> unreadable_number(const TaskContext& here) {
  for (const std::string_view name : {"RANK", "WORLD_SIZE", "MASTER_PORT"}) {
    if (here.number(name)) continue;
    return Problem{Outcome::fails,
                   concat({"ValueError: ", name, " is ", text::quote(here.text(name)), ", not a number"}),
                   concat({"leave ", name, " to --aml-dist"})};
  }
  return std::nullopt;
}

/// A world of one process in each task: rank 0 of each tries to listen at the master.
Problem own_world(const TaskContext& here) {
  const std::string what = concat({"WORLD_SIZE=1 in each of ", text::count(here.tasks(), "task")});
  const char* const remedy = "leave WORLD_SIZE to --aml-dist";
  if (is_loopback(here.text("MASTER_ADDR"))) return {Outcome::alone, what, remedy};
  return {Outcome::fails, concat({what, ": each wants to listen on the one MASTER_ADDR:MASTER_PORT"}), remedy};
}

/// Compares numbers with Slurm's variables of the step. Under a launcher the ranks are the launcher's.
std::optional<Problem> wrong_numbers(const TaskContext& here) {
  const std::uint64_t size = *here.number("WORLD_SIZE");
  const std::uint64_t rank = *here.number("RANK");
  if (rank >= size) {
    return Problem{Outcome::hangs,
                   concat({"RANK=", std::to_string(rank), " but WORLD_SIZE=", std::to_string(size),
                           ": the others wait for a rank that does not exist"}),
                   "leave both to --aml-dist"};
  }
  if (!here.in_step() || here.start() == Start::torchrun) return std::nullopt;
  if (size > here.tasks()) {
    return Problem{Outcome::hangs,
                   concat({"WORLD_SIZE=", std::to_string(size), " but the step has ", text::count(here.tasks(), "task"),
                           ": the others never come"}),
                   "leave WORLD_SIZE to --aml-dist"};
  }
  if (size == 1 && here.tasks() > 1) return own_world(here);
  if (const auto slurm = here.number("SLURM_PROCID"); slurm && *slurm != rank) {
    return Problem{Outcome::hangs,
                   concat({"RANK=", std::to_string(rank), " in task ", std::to_string(*slurm),
                           ": two tasks have the same rank, and one rank is missing"}),
                   "leave RANK to --aml-dist"};
  }
  return std::nullopt;
}

std::optional<Problem> unreachable_master(const TaskContext& here) {
  const std::string address = here.text("MASTER_ADDR");
  if (here.nodes() > 1 && is_loopback(address)) {
    return Problem{Outcome::hangs, concat({"MASTER_ADDR=", address, " is a different machine on each node"}),
                   "unset MASTER_ADDR: --aml-dist gives the address of rank 0's host"};
  }
  if (auto problem = foreign_master(here, address)) return problem;
  const std::uint64_t port = *here.number("MASTER_PORT");
  if (port > 65535) {
    return Problem{Outcome::fails, concat({"MASTER_PORT=", std::to_string(port), " is not a port"}),
                   "unset MASTER_PORT"};
  }
  if (port == 0 && *here.number("WORLD_SIZE") > 1) {
    return Problem{Outcome::hangs, "MASTER_PORT=0: rank 0 takes a port that the others do not know",
                   "unset MASTER_PORT"};
  }
  const bool agent = here.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  if (agent && here.start() != Start::torchrun) {
    return Problem{Outcome::hangs, "TORCHELASTIC_USE_AGENT_STORE=True, so no process listens: there is no torchrun",
                   "unset TORCHELASTIC_USE_AGENT_STORE"};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Problem> meeting_problem(const TaskContext& here) {
  if (auto problem = unreadable_number(here)) return problem;
  if (auto problem = wrong_numbers(here)) return problem;
  if (auto problem = unreachable_master(here)) return problem;
  if (here.gpus() == 0 && *here.number("WORLD_SIZE") > 1) return gloo_problem(here);
  return std::nullopt;
}

FrameworkResult examine_torch(const TaskContext& here) {
  constexpr std::array<std::string_view, 4> wanted = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
  FrameworkResult result{.environment = "env://"};
  for (const std::string_view name : wanted) {
    if (!here.text(name).empty()) continue;
    return with(result,
                {Outcome::fails,
                 concat({"ValueError: Error initializing torch.distributed using env:// rendezvous: environment "
                         "variable ",
                         name, " expected, but not set"}),
                 here.start() == Start::per_node ? "start it with torchrun, or use launch=per-process"
                                                 : "srun --aml-dist=pytorch"});
  }
  result.rank = here.number("RANK");
  result.size = here.number("WORLD_SIZE");
  result.master = here.master();
  if (auto problem = meeting_problem(here)) return with(result, std::move(*problem));
  return result;
}

}  // namespace amldist::doctor
