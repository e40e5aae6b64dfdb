// A job's environment as slurmstepd finds it: everything in it is the user's, but Slurm's own numbers are true.
#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <vector>

#include "base/text/text.hpp"
#include "fuzz.hpp"
#include "launch/frameworks/advice.hpp"
#include "launch/frameworks/task_environment.hpp"
#include "launch/option/spec.hpp"
#include "launch/placement/step_facts.hpp"
#include "launch/rendezvous/own_identity.hpp"
#include "launch/rendezvous/rendezvous.hpp"
#include "launch/rendezvous/stamp.hpp"
#include "step/messages/srun_link.hpp"
#include "step/messages/step_secret.hpp"

namespace amldist::fuzz::environment {
namespace {

/// Variables that the plugin reads, by a letter that the fuzzer can find.
constexpr std::array<std::string_view, 26> names = {"AMLDIST_STAMP",
                                                    "SLURM_STEP_NODELIST",
                                                    "SLURM_STEP_TASKS_PER_NODE",
                                                    "SLURM_DISTRIBUTION",
                                                    "SLURM_DIST_PLANESIZE",
                                                    "MASTER_ADDR",
                                                    "MASTER_PORT",
                                                    "SLURM_STEP_RESV_PORTS",
                                                    "SLURM_CLUSTER_NAME",
                                                    "SLURM_RESTART_COUNT",
                                                    "SLURM_HET_JOB_ID",
                                                    "CUDA_VISIBLE_DEVICES",
                                                    "ROCR_VISIBLE_DEVICES",
                                                    "SLURM_STEP_GPUS",
                                                    "GLOO_SOCKET_IFNAME",
                                                    "RANK",
                                                    "WORLD_SIZE",
                                                    "LOCAL_RANK",
                                                    "LOCAL_WORLD_SIZE",
                                                    "NODE_RANK",
                                                    "SLURM_NTASKS_PER_NODE",
                                                    "SLURM_PROCID",
                                                    "SLURM_NTASKS",
                                                    "PMIX_RANK",
                                                    "SLURM_GPUS_ON_NODE",
                                                    "SLURM_CPUS_PER_TASK"};

using Table = std::map<std::string, std::string, std::less<>>;

/// "a12.0 kind=pytorch\nb..." : a letter for the name, the value behind it.
Table read_table(Input& lines) {
  Table table;
  while (!lines.ended()) {
    const std::string_view line = lines.line();
    if (line.empty() || line.front() < 'a' || line.front() > 'z') continue;
    const std::string_view value = line.substr(1);
    table[std::string(names[static_cast<std::size_t>(line.front() - 'a')])] = value.substr(0, value.find('\0'));
  }
  return table;
}

EnvironmentReader reader_of(const Table& table) {
  return [&table](std::string_view name) -> std::optional<std::string> {
    const auto found = table.find(name);
    return found != table.end() ? std::optional(found->second) : std::nullopt;
  };
}

/// A step of Slurm's: `tasks` on each of `nodes`, this node being `node`.
struct Step {
  std::uint32_t nodes;
  std::uint32_t tasks_per_node;
  std::uint32_t node;
  launch::Kind kind;
};

Step read_step(std::string_view line) {
  Input bytes(line);
  constexpr std::array kinds = {launch::Kind::pytorch, launch::Kind::tensorflow, launch::Kind::mpi, launch::Kind::jax,
                                launch::Kind::ray};
  const std::uint32_t nodes = 1 + bytes.byte() % 8U;
  const std::uint32_t tasks = 1 + bytes.byte() % 4U;
  return {nodes, tasks, bytes.byte() % nodes, kinds[bytes.byte() % kinds.size()]};
}

void check_variables(const EnvironmentPatch& patch, const launch::StepPlan& plan, std::uint32_t rank) {
  const auto is_number = [&patch](std::string_view name, std::uint32_t number) {
    return patch.value_of(name) == std::to_string(number);
  };
  require(is_number("RANK", rank) && is_number("WORLD_SIZE", plan.placement.map.size()),
          "identity is never the user's");
  require(is_number("LOCAL_RANK", plan.placement.map.local_rank_of(rank)), "nor is the local rank");
  require(launch::is_host(patch.value_of("MASTER_ADDR").value_or("")), "MASTER_ADDR is a host");
  require(text::to_number(patch.value_of("MASTER_PORT").value_or(""), 65535).value_or(0) > 0, "MASTER_PORT is a port");
  for (const auto& change : patch.changes()) {
    require(!change.value || change.value->size() + change.name.size() + 2 <= longest_environment_string,
            "a variable fits the kernel's limit");
  }
}

/// The task's own view afterwards: what libdist reads in it is what the plugin wrote.
void check_identity(const EnvironmentPatch& patch, Table table, std::uint32_t rank) {
  table.erase("SLURM_PROCID");  // Slurm's own, and in a task always right
  table.erase("SLURM_NTASKS");
  for (const auto& change : patch.changes()) {
    if (change.value) table[change.name] = *change.value;
    else table.erase(change.name);
  }
  const auto own = launch::read_own_identity(reader_of(table));
  require(own && own->identity.rank == rank, "a task reads its own identity back");
}

void try_task(const launch::StepPlan& plan, std::uint32_t rank, const Table& table) {
  constexpr std::size_t most_bytes = 4UL << 20;
  const auto patch = within(most_bytes, [&] { return task_environment(plan, rank, reader_of(table)); });
  if (!patch) return require_sentence(patch.error().message);
  check_variables(*patch, plan, rank);
  check_identity(*patch, table, rank);
  const launch::Identity identity = identity_of(plan.placement.map, rank);
  if (const auto advice = gpu_advice(plan.spec, identity, reader_of(table))) require_sentence(*advice);
  if (const auto advice = mpi_advice(plan.spec, identity, reader_of(table))) require_sentence(*advice);
}

void try_step(const Step& step, const Table& table, const std::optional<std::string>& exact_map) {
  std::vector<std::uint32_t> ranks(step.tasks_per_node);
  std::iota(ranks.begin(), ranks.end(), step.node * step.tasks_per_node);
  const launch::SlurmNodeView own_node{step.node, step.nodes, step.nodes * step.tasks_per_node, ranks};
  constexpr std::size_t most_bytes = 64UL << 20;
  auto placement = within(most_bytes, [&] { return read_placement(reader_of(table), exact_map, own_node); });
  if (!placement) return require_sentence(placement.error().message);
  require(placement->map.ranks_on(step.node) == ranks, "no map contradicts Slurm about this node");
  require(placement->hosts.size() == step.nodes, "nor about the nodes of the step");
  launch::Spec spec;
  spec.kind = step.kind;
  if (const auto counts = launch::check_counts(spec, placement->map); !counts)
    return require_sentence(counts.error().message);
  const launch::RendezvousFacts facts{"10.0.0.1", PortRanges::parse("20000-29999").value(),
                                      launch::read_job_name(reader_of(table), 7), 3};
  std::vector<std::string> notes;
  auto rendezvous = settle(spec, facts, reader_of(table), notes);
  if (!rendezvous) return require_sentence(rendezvous.error().message);
  for (const std::string& note : notes) require_sentence(note);
  const launch::StepPlan plan{spec, std::move(*placement), std::move(*rendezvous), "7.3"};
  for (const std::uint32_t rank : ranks) try_task(plan, rank, table);
}

}  // namespace

const std::string_view separator = "\n";

/// First line: the step. Second: srun's map, if not empty. Then the variables.
void try_input(std::string_view input) {
  Input lines(input);
  const Step step = read_step(lines.line());
  const std::string_view map = lines.line();
  const Table table = read_table(lines);
  if (const auto status = launch::read_own_identity(reader_of(table)); !status)
    require_sentence(status.error().message);
  if (const auto stamp = launch::Stamp::read(reader_of(table))) {
    const std::string text = stamp->to_string();
    const auto again = launch::Stamp::read([&text](std::string_view) { return std::optional(text); });
    require(text.empty() || (again && again->to_string() == text), "a stamp that is written is the same");
  }
  constexpr std::size_t hexadecimal_digits = 64;
  const std::string secret = step::read_secret(reader_of(table));
  require(secret.empty() || secret.size() == hexadecimal_digits, "a secret is valid or it is not taken");
  if (const auto link = step::read_srun_link(reader_of(table))) require(link->channel.port != 0, "srun has a port");
  try_step(step, table, map.empty() ? std::nullopt : std::optional<std::string>(map));
}

}  // namespace amldist::fuzz::environment
