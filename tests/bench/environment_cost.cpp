// What the core costs without a cluster: the environment of one task in small and in very large steps.
//
//   environment_cost [--rounds N]
//
// Things to compare are timed in turn, round after round; a figure is the median over the rounds with its 95 %
// confidence interval from order statistics. Comparisons are medians of the ratios within a round.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launch/frameworks/task_environment.hpp"
#include "step/messages/launch_record.hpp"

namespace {

using namespace amldist;

// ---- measuring ----

struct Figure {
  double median = 0;
  double low = 0;
  double high = 0;
};

/// Median with the order statistics that enclose it with at least 95 % probability (sign test).
Figure figure_of(std::vector<double> samples) {
  std::ranges::sort(samples);
  const auto n = static_cast<double>(samples.size());
  const double reach = 1.96 * std::sqrt(n) / 2;
  const auto at = [&](double position) {
    const double inside = std::clamp(position, 0.0, n - 1);
    return samples[static_cast<std::size_t>(inside)];
  };
  return {at((n - 1) / 2), at(std::floor(n / 2 - reach) - 1), at(std::ceil(n / 2 + reach))};
}

template <typename Value>
void keep(const Value& value) {
  asm volatile("" : : "g"(&value) : "memory");
}

using Work = std::function<void()>;

double seconds(const Work& work, unsigned repeats) {
  const auto start = std::chrono::steady_clock::now();
  for (unsigned i = 0; i < repeats; ++i) work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / repeats;
}

/// Times the works in turn; returns for each its microseconds, round by round.
std::vector<std::vector<double>> measure(std::span<const Work> works, unsigned rounds) {
  constexpr double long_enough = 2e-4;  // far above the clock's grain
  std::vector<unsigned> repeats;
  for (const Work& work : works) {
    seconds(work, 1);
    const double once = std::max(seconds(work, 3), 1e-9);
    repeats.push_back(static_cast<unsigned>(std::clamp(long_enough / once, 1.0, 1e6)));
  }
  std::vector<std::vector<double>> samples(works.size());
  for (unsigned round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < works.size(); ++i) samples[i].push_back(1e6 * seconds(works[i], repeats[i]));
  }
  return samples;
}

// ---- reporting ----

void print_cell(const Figure& f) {
  char cell[64];
  std::snprintf(cell, sizeof cell, "%.2f (%.2f..%.2f)", f.median, f.low, f.high);
  std::printf("  %28s", cell);
}

void print_goal(const std::string& name, const Figure& f, double limit) {
  const char* const verdict = f.high <= limit ? "met" : f.low > limit ? "not met" : "undecided";
  std::printf("  goal %s: %.2f (%.2f..%.2f), at most %g: %s\n", name.c_str(), f.median, f.low, f.high, limit, verdict);
}

[[noreturn]] void give_up(std::string_view sentence) {
  std::fprintf(stderr, "environment_cost: %.*s\n", static_cast<int>(sentence.size()), sentence.data());
  std::exit(1);
}

template <typename T>
const T& demand(const Result<T>& result) {
  if (!result) give_up(result.error().message);
  return *result;
}

// ---- environment ----

constexpr std::uint32_t tasks_per_node = 8;

/// Slurm's variables of a step, among as many of the user's as a shell on a cluster has.
struct Step {
  std::uint32_t nodes;
  bool cyclic;
  std::map<std::string, std::string, std::less<>> variables;
  std::string record;
  std::vector<std::uint32_t> ranks;  ///< of the node in the middle
  EnvironmentReader reader;

  [[nodiscard]] std::uint32_t tasks() const { return nodes * tasks_per_node; }
  [[nodiscard]] std::uint32_t node() const { return nodes / 2; }
};

Step make_step(std::uint32_t nodes, bool cyclic) {
  Step step{nodes, cyclic, {}, {}, {}, {}};
  for (int i = 0; i < 80; ++i) step.variables["SITE_VARIABLE_" + std::to_string(i)] = "/opt/site/some/where";
  const std::string count = std::to_string(nodes);
  step.variables["SLURM_STEP_NODELIST"] = "node[00001-" + std::string(5 - count.size(), '0') + count + "]";
  step.variables["SLURM_CLUSTER_NAME"] = "bench";
  step.variables["SLURM_NTASKS"] = std::to_string(step.tasks());
  const std::string map = "(vector,(0," + count + "," + (cyclic ? "1" : std::to_string(tasks_per_node)) + "))";
  step.record = "1;step=12.0;addr=10.0.0.1;ports=20000-29999;map=" + map;
  for (std::uint32_t i = 0; i < tasks_per_node; ++i) {
    step.ranks.push_back(cyclic ? step.node() + i * nodes : step.node() * tasks_per_node + i);
  }
  return step;
}

/// What slurmstepd does once for the node's tasks, from the text that srun sent.
Result<launch::StepPlan> make_plan(const Step& step, const launch::Spec& spec) {
  const auto record = step::LaunchRecord::parse(step.record);
  if (!record) return record.error();
  const launch::SlurmNodeView own_node{step.node(), step.nodes, step.tasks(), step.ranks};
  auto placement = read_placement(step.reader, record->map, own_node);
  if (!placement) return placement.error();
  std::vector<std::string> notes;
  const launch::RendezvousFacts facts{record->address, record->ports,
                                      launch::read_job_name(step.reader, record->job_id), record->step_id};
  auto rendezvous = settle(spec, facts, step.reader, notes);
  if (!rendezvous) return rendezvous.error();
  return launch::StepPlan{spec, std::move(*placement), std::move(*rendezvous), "12.0"};
}

/// One kind and distribution in steps of all sizes, timed in turn.
void measure_environments(const char* kind, bool cyclic, unsigned rounds) {
  const launch::Spec spec = demand(launch::parse_spec(kind));
  std::deque<Step> steps;  // readers refer to them
  std::deque<launch::StepPlan> plans;
  std::vector<Work> works;
  for (const std::uint32_t nodes : {16U, 160U, 1024U, 10240U}) {
    Step& step = steps.emplace_back(make_step(nodes, cyclic));
    step.reader = [&step](std::string_view name) -> std::optional<std::string> {
      const auto found = step.variables.find(name);
      return found == step.variables.end() ? std::nullopt : std::optional(found->second);
    };
    const launch::StepPlan& plan = plans.emplace_back(demand(make_plan(step, spec)));
    works.emplace_back([&step, &spec] { keep(make_plan(step, spec)); });
    works.emplace_back([&step, &plan] { keep(task_environment(plan, step.ranks.back(), step.reader)); });
  }
  const auto samples = measure(works, rounds);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    const bool possible = task_environment(plans[i], step.ranks.back(), step.reader).ok();
    std::printf("  %-10s  %-6s  %6u  %6u  %-7s", kind, cyclic ? "cyclic" : "block", step.nodes, step.tasks(),
                possible ? "set" : "refused");
    print_cell(figure_of(samples[2 * i]));
    print_cell(figure_of(samples[2 * i + 1]));
    std::printf("\n");
  }
  if (std::string_view(kind) != "pytorch") return;
  std::vector<double> both;
  std::vector<double> growth;
  for (unsigned round = 0; round < rounds; ++round) {
    both.push_back(samples[samples.size() - 2][round] + samples.back()[round]);
    growth.push_back(samples.back()[round] / samples[1][round]);
  }
  print_goal("10240 nodes x 8 tasks, plan and environment of a task in us", figure_of(both), 1000);
  print_goal("10240 nodes x 8 tasks, environment, ratio to 16 nodes (constant)", figure_of(growth), 1.5);
}

}  // namespace

int main(int argc, char** argv) {
  unsigned rounds = 31;
  if (argc == 3 && std::string_view(argv[1]) == "--rounds") {
    rounds = static_cast<unsigned>(std::max(5, std::atoi(argv[2])));
  } else if (argc != 1) {
    std::printf("environment_cost [--rounds N]\n");
    return std::string_view(argv[1]) == "--help" ? 0 : 2;
  }
  std::printf("environment_cost: medians of %u rounds (95 %% confidence interval), microseconds\n", rounds);
  std::printf("  %-10s  %-6s  %6s  %6s  %-7s  %28s  %28s\n", "kind", "layout", "nodes", "tasks", "result",
              "plan, once per node", "environment of a task");
  for (const char* kind : {"pytorch", "mpi", "jax", "tensorflow"}) {
    for (const bool cyclic : {false, true}) measure_environments(kind, cyclic, rounds);
  }
  return 0;
}
