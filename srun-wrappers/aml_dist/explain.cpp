#include "aml_dist/explain.hpp"

#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "aml_dist/exit_status.hpp"
#include "aml_dist/table.hpp"
#include "core/spec.hpp"
#include "core/text.hpp"
#include "frameworks/task_environment.hpp"
#include "placement/identity.hpp"
#include "rendezvous/stamp.hpp"

namespace amldist::tools {
namespace {

using text::concat;

std::optional<std::string> own_variable(std::string_view name) {
  const char* const value = std::getenv(std::string(name).c_str());
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

/// What the tasks' environment would hold before the patch: nothing but what the options say.
EnvironmentReader imagined_environment(const ExplainOptions& options) {
  std::string gpus;
  for (std::uint32_t i = 0; i < options.gpus_per_node; ++i) gpus += concat({i == 0 ? "" : ",", std::to_string(i)});
  return [gpus](std::string_view name) -> std::optional<std::string> {
    if (name == "CUDA_VISIBLE_DEVICES" && !gpus.empty()) return gpus;
    return std::nullopt;
  };
}

Result<StepPlan> make_plan(const ExplainOptions& options) {
  const bool inside_step = options.layout.nodelist.empty() && options.layout.hostfile.empty();
  const auto stamp = Stamp::read(own_variable);
  const std::string running(stamp ? stamp->value_of("kind").value_or("pytorch") : "pytorch");
  auto spec = parse_spec(options.option.empty() ? running : options.option);
  if (!spec) return spec.error();
  auto placement = inside_step ? placement_of_this_step(own_variable) : make_placement(options.layout);
  if (!placement) return placement.error();
  if (auto counts = check_counts(*spec, placement->map); !counts) return counts.error();
  auto ports = PortRanges::parse(options.port_range);
  if (!ports) return ports.error();
  // Offline nothing can be resolved, so the master's name stands where srun would write its address.
  const RendezvousFacts facts{placement->master_host(), std::move(*ports),
                              JobName{options.cluster, options.job, options.restart}, options.step};
  std::vector<std::string> notes;
  const EnvironmentReader nothing = [](std::string_view) { return std::nullopt; };
  auto rendezvous = settle(*spec, facts, nothing, notes);
  if (!rendezvous) return rendezvous.error();
  return StepPlan{std::move(*spec), std::move(*placement), std::move(*rendezvous),
                  concat({std::to_string(options.job), ".", std::to_string(options.step)})};
}

nlohmann::ordered_json to_json(const StepPlan& plan, std::uint32_t rank, const EnvironmentPatch& patch) {
  const Identity id = identity_of(plan.placement.map, rank);
  nlohmann::ordered_json env = nlohmann::ordered_json::object();
  for (const auto& change : patch.changes()) {
    if (change.value) env[change.name] = *change.value;
  }
  return {{"rank", id.rank},
          {"local_rank", id.local_rank},
          {"node_rank", id.node_rank},
          {"host", plan.placement.host_of(rank)},
          {"env", std::move(env)}};
}

/// A value as a POSIX shell reads it back.
std::string shell_quoted(std::string_view value) {
  std::string out = "'";
  for (const char c : value) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

void print_exports(const EnvironmentPatch& patch) {
  for (const auto& change : patch.changes()) {
    if (change.value) std::printf("export %s=%s\n", change.name.c_str(), shell_quoted(*change.value).c_str());
    else std::printf("unset %s\n", change.name.c_str());
  }
}

void print_step(const StepPlan& plan) {
  const TaskMap& map = plan.placement.map;
  std::printf("%s, %s: %s on %s, %s (%s)\nrendezvous %s:%u\n\n", std::string(to_string(plan.spec.kind)).c_str(),
              std::string(to_string(plan.spec.launch)).c_str(), text::count(map.size(), "task").c_str(),
              text::count(map.nodes(), "node").c_str(), map.to_string().c_str(), plan.placement.source.c_str(),
              plan.rendezvous.address.c_str(), static_cast<unsigned>(plan.rendezvous.port));
}

std::vector<std::string> table_row(const StepPlan& plan, std::uint32_t rank) {
  const Identity id = identity_of(plan.placement.map, rank);
  return {std::to_string(id.rank), plan.placement.host_of(rank), std::to_string(id.local_rank),
          std::to_string(id.local_size), std::to_string(id.node_rank)};
}

int fail(const Error& error) {
  std::fprintf(stderr, "aml-dist: %s\n", error.message.c_str());
  return error.code == Errc::invalid_argument ? exit_usage : exit_failed;
}

int explain_one(const StepPlan& plan, std::uint32_t rank, const ExplainOptions& options) {
  if (rank >= plan.placement.map.size()) {
    return fail({Errc::invalid_argument, concat({"--task ", std::to_string(rank), " does not exist: the step has ",
                                                 text::count(plan.placement.map.size(), "task")})});
  }
  const auto patch = task_environment(plan, rank, imagined_environment(options));
  if (!patch) return fail(patch.error());
  if (options.json) std::puts(nlohmann::ordered_json::array({to_json(plan, rank, *patch)}).dump(2).c_str());
  else print_exports(*patch);
  return exit_fine;
}

int explain_all(const StepPlan& plan, const ExplainOptions& options) {
  nlohmann::ordered_json tasks = nlohmann::ordered_json::array();
  std::vector<std::vector<std::string>> rows = {{"RANK", "HOST", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK"}};
  for (std::uint32_t rank = 0; rank < plan.placement.map.size(); ++rank) {
    const auto patch = task_environment(plan, rank, imagined_environment(options));
    if (!patch) return fail(patch.error());
    if (options.json) tasks.push_back(to_json(plan, rank, *patch));
    else rows.push_back(table_row(plan, rank));
  }
  if (options.json) {
    std::puts(tasks.dump(2).c_str());
    return exit_fine;
  }
  print_step(plan);
  std::fputs(format_table(rows).c_str(), stdout);
  std::puts("\n--task N prints the whole environment of one task, --json that of all.");
  return exit_fine;
}

}  // namespace

int explain(const ExplainOptions& options) {
  const auto plan = make_plan(options);
  if (!plan) return fail(plan.error());
  return options.task ? explain_one(*plan, *options.task, options) : explain_all(*plan, options);
}

}  // namespace amldist::tools
