#include "aml_dist/explain/explain.hpp"

#include <cstdio>

#include "aml_dist/common/explanation.hpp"
#include "aml_dist/common/files.hpp"
#include "aml_dist/common/hops.hpp"
#include "aml_dist/explain/explain_output.hpp"
#include "aml_dist/explain/layout_svg.hpp"
#include "aml_dist/trace/running_step.hpp"
#include "base/os/environment.hpp"
#include "base/text/text.hpp"
#include "launch/option/spec.hpp"
#include "launch/rendezvous/master_address.hpp"
#include "shared/exit_status.hpp"
#include "shared/programs.hpp"
#include "shared/terminal.hpp"

namespace amldist::tools {
namespace {

using commands::fail;
using text::concat;

/// A task's environment before the patch: the GPUs given by the options, and the variables that srun itself sets and a
/// per-node launcher must not see.
EnvironmentReader imagined_environment(const ExplainOptions& options, std::uint32_t tasks) {
  std::string gpus;
  for (std::uint32_t i = 0; i < options.gpus_per_node; ++i) gpus += concat({i == 0 ? "" : ",", std::to_string(i)});
  return [gpus, tasks, step = options.step](std::string_view name) -> std::optional<std::string> {
    if (name == "CUDA_VISIBLE_DEVICES" && !gpus.empty()) return gpus;
    if (name == "SLURM_NTASKS" || name == "SLURM_NPROCS") return std::to_string(tasks);
    if (name == "SLURM_STEP_ID") return std::to_string(step);
    return std::nullopt;
  };
}

/// Tasks to print. A table needs no environment: the first and the last task, which have the longest values, show
/// whether one would be refused. The rest is left out, because with long host lists it would take gigabytes.
Result<std::vector<ExplainedTask>> chosen_tasks(const Explanation& step, const ExplainOptions& options) {
  const std::uint32_t size = step.plan.placement.map.size();
  if (options.task && *options.task >= size) {
    return Error{Errc::invalid_argument, concat({"--task ", std::to_string(*options.task),
                                                 " does not exist: the step has ", text::count(size, "task")})};
  }
  const bool whole_environments = options.json || options.task;
  const launch::Placement& placement = step.plan.placement;
  std::vector<ExplainedTask> tasks;
  for (std::uint32_t rank = options.task.value_or(0); rank < (options.task ? *options.task + 1 : size); ++rank) {
    if (whole_environments || rank == 0 || rank + 1 == size) {
      auto task = step.task(rank);
      if (!task) return task.error();
      tasks.push_back(std::move(*task));
    } else {
      tasks.push_back({launch::identity_of(placement.map, rank), placement.host_of(rank), {}});
    }
  }
  return tasks;
}

/// A step that srun would refuse is a valid answer, not a wrong question.
int fail_step(const Error& error) {
  const bool refused = error.code == Errc::mismatch || error.code == Errc::limit;
  const int status = fail(error);
  return refused ? static_cast<int>(commands::exit_failed) : status;
}

int print_step(const Explanation& step, const ExplainOptions& options) {
  const auto tasks = chosen_tasks(step, options);
  if (!tasks) return fail_step(tasks.error());
  if (!options.svg.empty()) {
    const auto written = write_file(options.svg, draw_layout(step.plan));
    if (!written) return fail(written.error());
  }
  std::string hops;
  if (!options.topology.empty()) {
    const auto network = read_topology(options.topology);
    if (!network) return fail(network.error());
    hops = concat({describe_hops(*network, step.plan.placement), "\n"});
  }
  if (options.json) {
    std::fputs(to_json(*tasks).c_str(), stdout);
  } else if (options.task) {
    std::fputs(to_exports(tasks->front()).c_str(), stdout);
  } else if (step.plan.spec.kind == launch::Kind::none) {
    std::puts("none: aml-dist leaves the step as Slurm started it, and sets no variable");
  } else {
    std::printf("%s\n%s%s\n--task N prints the whole environment of one task, --json that of all.\n",
                describe_step(step.plan).c_str(), hops.c_str(), to_table(*tasks).c_str());
  }
  return commands::exit_done;
}

/// Only this task is known.
int print_own(const RunningStep& running, const ExplainOptions& options) {
  const std::uint32_t rank = running.own.identity.rank;
  if (!options.option.empty() || !options.svg.empty() || (options.task && *options.task != rank)) {
    return fail({Errc::unavailable, concat({running.reason, ": only this task, rank ", std::to_string(rank), " of ",
                                            std::to_string(running.own.identity.size), ", can be shown"})});
  }
  std::fprintf(stderr, "aml-dist: %s: this is rank %u of %u alone\n", running.reason.c_str(), rank,
               running.own.identity.size);
  if (options.json) std::fputs(to_json({&running.own, 1}).c_str(), stdout);
  else if (options.task) std::fputs(to_exports(running.own).c_str(), stdout);
  else std::printf("%s\n%s", to_table({&running.own, 1}).c_str(), to_exports(running.own).c_str());
  return commands::exit_done;
}

/// No node has an address offline.
launch::NetworkView unknown_network() {
  launch::NetworkView network;
  network.address_of_node = [](const std::string& node) -> Result<Ipv4> {
    return Error{Errc::unavailable, text::concat({"the address of ", node, " is not known here"})};
  };
  return network;
}

}  // namespace

Result<Explanation> explain_layout(const ExplainOptions& options) {
  auto spec = launch::parse_spec(options.option.empty() ? "pytorch" : options.option);
  if (!spec) return spec.error();
  auto placement = make_placement(options.layout);
  if (!placement) return placement.error();
  if (auto status = launch::check_counts(*spec, placement->map); !status) return status.error();
  auto ports = PortRanges::parse(options.port_range);
  if (!ports) return ports.error();
  // Nothing can be resolved offline, so the master's name replaces the address that srun would write.
  const launch::RendezvousFacts facts{placement->master_host(), std::move(*ports),
                                      launch::JobName{options.cluster, options.job, options.restart}, options.step};
  std::vector<std::string> notes;
  const EnvironmentReader nothing = [](std::string_view) { return std::nullopt; };
  auto rendezvous = settle(*spec, facts, nothing, notes);
  if (!rendezvous) return rendezvous.error();
  if (auto status = refuse_loopback(*rendezvous, *placement, unknown_network()); !status) return status.error();
  const EnvironmentReader inherited = imagined_environment(options, placement->map.size());
  return Explanation{launch::StepPlan{std::move(*spec), std::move(*placement), std::move(*rendezvous),
                                      concat({std::to_string(options.job), ".", std::to_string(options.step)})},
                     [inherited](std::uint32_t) { return inherited; }};
}

int explain(const ExplainOptions& options) {
  if (launch::is_help(options.option)) {
    std::fputs(launch::option_help().c_str(), stdout);
    return commands::exit_done;
  }
  if (describes_a_layout(options.layout)) {
    const auto step = explain_layout(options);
    return step ? print_step(*step, options) : fail_step(step.error());
  }
  const auto running = read_running_step(own_variable, options.option);
  if (!running) return fail_step(running.error());
  return running->whole ? print_step(*running->whole, options) : print_own(*running, options);
}

}  // namespace amldist::tools
