// What the core costs away from any cluster: the environment of one task in small and in very large steps, and host
// lists against libslurm's own.
//
//   environment_cost [--rounds N] [--libslurm FILE] [--json]
//
// Things to compare are timed in turn, round after round; a figure is the median over the rounds with its 95 %
// confidence interval from order statistics. Comparisons are medians of the ratios within a round.
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/hostlist.hpp"
#include "launch/frameworks/task_environment.hpp"
#include "step/messages/launch_record.hpp"

namespace {

using namespace amldist;

// ----  ----
// measuring

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

Figure microseconds(const Work& work, unsigned rounds) { return figure_of(measure(std::span(&work, 1), rounds)[0]); }

// ----  ----
// reporting

struct Row {
  std::string table;
  std::vector<std::pair<std::string, std::string>> words;
  std::vector<std::pair<std::string, Figure>> figures;
};

struct Goal {
  std::string name;
  Figure value;
  double limit;
  bool at_least;  // else: at most

  [[nodiscard]] const char* verdict() const {
    if (at_least) return value.low >= limit ? "met" : value.high < limit ? "not met" : "undecided";
    return value.high <= limit ? "met" : value.low > limit ? "not met" : "undecided";
  }
};

void print_table(std::string_view title, std::string_view name, const std::vector<Row>& rows) {
  std::printf("\n%.*s\n", static_cast<int>(title.size()), title.data());
  bool first = true;
  for (const Row& row : rows) {
    if (row.table != name) continue;
    if (first) {
      for (const auto& [key, text] : row.words) std::printf("  %-12s", key.c_str());
      for (const auto& [key, figure] : row.figures) std::printf("  %26s", key.c_str());
      std::printf("\n");
      first = false;
    }
    for (const auto& [key, text] : row.words) std::printf("  %-12s", text.c_str());
    for (const auto& [key, f] : row.figures) {
      char cell[64];
      std::snprintf(cell, sizeof cell, "%.2f (%.2f..%.2f)", f.median, f.low, f.high);
      std::printf("  %26s", cell);
    }
    std::printf("\n");
  }
}

void print_goal(const Goal& goal) {
  std::printf("  goal %s: %.2f (%.2f..%.2f), %s %g: %s\n", goal.name.c_str(), goal.value.median, goal.value.low,
              goal.value.high, goal.at_least ? "at least" : "at most", goal.limit, goal.verdict());
}

void print_figure_as_json(const char* key, const Figure& f) {
  std::printf("\"%s\":{\"median\":%.4f,\"low\":%.4f,\"high\":%.4f}", key, f.median, f.low, f.high);
}

void print_json(const std::vector<Row>& rows, const std::vector<Goal>& goals) {
  std::printf("{\"rows\":[");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::printf("%s\n{\"table\":\"%s\"", i == 0 ? "" : ",", rows[i].table.c_str());
    for (const auto& [key, text] : rows[i].words) std::printf(",\"%s\":\"%s\"", key.c_str(), text.c_str());
    for (const auto& [key, figure] : rows[i].figures) {
      std::printf(",");
      print_figure_as_json(key.c_str(), figure);
    }
    std::printf("}");
  }
  std::printf("],\n\"goals\":[");
  for (std::size_t i = 0; i < goals.size(); ++i) {
    std::printf("%s\n{\"name\":\"%s\",\"limit\":%g,\"verdict\":\"%s\",", i == 0 ? "" : ",", goals[i].name.c_str(),
                goals[i].limit, goals[i].verdict());
    print_figure_as_json("value", goals[i].value);
    std::printf("}");
  }
  std::printf("]}\n");
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

// ----  ----
// environment

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
  const launch::RendezvousFacts facts{record->address, record->ports, read_job_name(step.reader, record->job_id),
                                      record->step_id};
  auto rendezvous = settle(spec, facts, step.reader, notes);
  if (!rendezvous) return rendezvous.error();
  return launch::StepPlan{spec, std::move(*placement), std::move(*rendezvous), "12.0"};
}

/// One kind and distribution in steps of all sizes, timed in turn.
void measure_environments(const char* kind, bool cyclic, unsigned rounds, std::vector<Row>& rows,
                          std::vector<Goal>& goals) {
  const launch::Spec spec = demand(parse_spec(kind));
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
    const auto& plan_times = samples[2 * i];
    const auto& environment_times = samples[2 * i + 1];
    std::vector<double> both;
    std::vector<double> growth;
    for (unsigned round = 0; round < rounds; ++round) {
      both.push_back(plan_times[round] + environment_times[round]);
      growth.push_back(environment_times[round] / samples[1][round]);
    }
    const Step& step = steps[i];
    const bool possible = task_environment(plans[i], step.ranks.back(), step.reader).ok();
    rows.push_back({"environment",
                    {{"kind", kind},
                     {"distribution", cyclic ? "cyclic" : "block"},
                     {"nodes", std::to_string(step.nodes)},
                     {"tasks", std::to_string(step.tasks())},
                     {"result", possible ? "set" : "refused"}},
                    {{"plan_us", figure_of(plan_times)},
                     {"environment_us", figure_of(environment_times)},
                     {"both_us", figure_of(both)}}});
    if (std::string_view(kind) != "pytorch" || i + 1 < steps.size()) continue;
    const std::string what = std::string("pytorch, ") + (cyclic ? "cyclic" : "block") + ", 10240 nodes x 8 tasks";
    goals.push_back({what + ": plan and environment of a task in us", figure_of(both), 1000, false});
    goals.push_back({what + ": environment, ratio to 16 nodes (constant)", figure_of(growth), 1.5, false});
  }
}

// ---- host lists, ----
// libslurm

/// The functions of libslurm's public header that take a host list apart.
struct SlurmHostlists {
  void* (*create)(const char*) = nullptr;
  char* (*shift)(void*) = nullptr;
  void (*destroy)(void*) = nullptr;
};

std::optional<SlurmHostlists> load_libslurm(const char* file) {
  void* library = nullptr;
  for (const char* name : {file, "libslurm.so", "libslurm.so.45", "libslurm.so.43", "libslurm.so.42", "libslurm.so.41",
                           "libslurm.so.40", "libslurm.so.39", "libslurm.so.38"}) {
    if (library == nullptr && name != nullptr) library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) return std::nullopt;
  SlurmHostlists slurm;
  slurm.create = reinterpret_cast<decltype(slurm.create)>(::dlsym(library, "slurm_hostlist_create"));
  slurm.shift = reinterpret_cast<decltype(slurm.shift)>(::dlsym(library, "slurm_hostlist_shift"));
  slurm.destroy = reinterpret_cast<decltype(slurm.destroy)>(::dlsym(library, "slurm_hostlist_destroy"));
  if (slurm.create == nullptr || slurm.shift == nullptr || slurm.destroy == nullptr) return std::nullopt;
  return slurm;
}

/// Every name, as a program written against libslurm gets it; `taken` may look at each.
template <typename Taken>
void expand_with(const SlurmHostlists& slurm, const std::string& text, Taken taken) {
  void* const list = slurm.create(text.c_str());
  if (list == nullptr) give_up("libslurm refuses the host list");
  while (char* const name = slurm.shift(list)) {
    taken(name);
    std::free(name);
  }
  slurm.destroy(list);
}

std::string numbers(unsigned count, unsigned hole_every, std::string_view before, bool compressed) {
  std::string text;
  char name[32];
  for (unsigned i = 1; i <= count; ++i) {
    if (hole_every != 0 && i % hole_every == 0) continue;
    if (!text.empty()) text += ',';
    if (compressed) {
      const unsigned last = std::min(count, i + hole_every - 2);
      std::snprintf(name, sizeof name, "%05u-%05u", i, last);
      i = last;
    } else {
      std::snprintf(name, sizeof name, "%.*s%05u", static_cast<int>(before.size()), before.data(), i);
    }
    text += name;
  }
  return compressed ? std::string(before) + "[" + text + "]" : text;
}

void measure_hostlists(unsigned rounds, const char* file, std::vector<Row>& rows, std::vector<Goal>& goals) {
  const auto slurm = load_libslurm(file);
  if (!slurm) std::fprintf(stderr, "environment_cost: no libslurm (--libslurm FILE): host lists are not compared\n");
  const std::pair<const char*, std::string> lists[] = {
      {"one range", "node[00001-10240]"},
      {"with holes", numbers(12800, 5, "node", true)},
      {"name by name", numbers(10240, 0, "node", false)},
      {"rack, node", "rack[0-99]b[0-99]"},
      {"16 racks", "rack[01-16]-node[001-640]"},
  };
  for (const auto& [label, text] : lists) {
    const auto ours = demand(Hostlist::parse(text)).expand();
    Row row{"hostlist",
            {{"list", label}, {"hosts", std::to_string(ours.size())}, {"bytes", std::to_string(text.size())}},
            {}};
    const auto expand = [&text] { keep(Hostlist::parse(text)->expand()); };
    row.figures.emplace_back("parse_us", microseconds([&text] { keep(Hostlist::parse(text)); }, rounds));
    if (!slurm) {
      row.figures.emplace_back("expand_us", microseconds(expand, rounds));
      rows.push_back(std::move(row));
      continue;
    }
    std::size_t same = 0;
    std::size_t index = 0;
    expand_with(*slurm, text, [&](const char* name) {
      if (index < ours.size() && ours[index] == name) ++same;
      ++index;
    });
    if (same != ours.size() || index != ours.size()) give_up("libslurm reads another list of hosts out of " + text);
    const Work works[] = {expand, [&] { expand_with(*slurm, text, [](const char* name) { keep(name); }); }};
    const auto samples = measure(works, rounds);
    std::vector<double> ratios;
    for (unsigned i = 0; i < rounds; ++i) ratios.push_back(samples[1][i] / samples[0][i]);
    row.figures.emplace_back("expand_us", figure_of(samples[0]));
    row.figures.emplace_back("libslurm_us", figure_of(samples[1]));
    row.figures.emplace_back("times_faster", figure_of(ratios));
    rows.push_back(std::move(row));
    goals.push_back({std::string("host list, ") + label + ": times faster than libslurm", figure_of(ratios), 5, true});
  }
}

}  // namespace

int main(int argc, char** argv) {
  unsigned rounds = 31;
  const char* libslurm = nullptr;
  bool json = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--json") json = true;
    else if (word == "--rounds" && i + 1 < argc) rounds = static_cast<unsigned>(std::max(5, std::atoi(argv[++i])));
    else if (word == "--libslurm" && i + 1 < argc) libslurm = argv[++i];
    else {
      std::printf("environment_cost [--rounds N] [--libslurm FILE] [--json]\n");
      return word == "--help" ? 0 : 2;
    }
  }
  std::vector<Row> rows;
  std::vector<Goal> goals;
  for (const char* kind : {"pytorch", "mpi", "jax", "tensorflow"}) {
    for (const bool cyclic : {false, true}) measure_environments(kind, cyclic, rounds, rows, goals);
  }
  measure_hostlists(rounds, libslurm, rows, goals);
  if (json) {
    print_json(rows, goals);
    return 0;
  }
  std::printf("environment_cost: medians of %u rounds (95 %% confidence interval), microseconds\n", rounds);
  print_table("Environment of one task, and the plan that slurmstepd makes once per node", "environment", rows);
  print_table("Host lists: parse; parse and write out every name; libslurm's slurm_hostlist_create and _shift",
              "hostlist", rows);
  std::printf("\n");
  for (const Goal& goal : goals) print_goal(goal);
  return 0;
}
