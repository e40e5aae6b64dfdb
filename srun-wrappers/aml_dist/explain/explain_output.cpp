#include "aml_dist/explain/explain_output.hpp"

#include <nlohmann/json.hpp>
#include <vector>

#include "aml_dist/common/table.hpp"
#include "base/text/text.hpp"
#include "shared/json.hpp"

namespace amldist::tools {
namespace {

using text::concat;

nlohmann::ordered_json object_of(const ExplainedTask& task) {
  nlohmann::ordered_json env = nlohmann::ordered_json::object();
  for (const auto& change : task.environment.changes()) {
    if (change.value) env[change.name] = *change.value;
  }
  return {{"rank", task.identity.rank},
          {"local_rank", task.identity.local_rank},
          {"node_rank", task.identity.node_rank},
          {"host", task.host},
          {"env", std::move(env)}};
}

/// A value as a POSIX shell reads it back.
std::string shell_quoted(std::string_view value) {
  std::string out = "'";
  for (const char c : value) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::vector<std::string> table_row(const ExplainedTask& task) {
  const launch::Identity& id = task.identity;
  return {std::to_string(id.rank), task.host, std::to_string(id.local_rank), std::to_string(id.local_size),
          std::to_string(id.node_rank)};
}

}  // namespace

std::string to_json(std::span<const ExplainedTask> tasks) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const ExplainedTask& task : tasks) array.push_back(object_of(task));
  return commands::json_text(array);
}

std::string to_exports(const ExplainedTask& task) {
  std::string out;
  for (const auto& change : task.environment.changes()) {
    if (change.value) out += concat({"export ", change.name, "=", shell_quoted(*change.value), "\n"});
    else out += concat({"unset ", change.name, "\n"});
  }
  return out;
}

std::string describe_step(const launch::StepPlan& plan) {
  const launch::TaskMap& map = plan.placement.map;
  return concat({to_string(plan.spec.kind), ", ", to_string(plan.spec.launch), ": ", text::count(map.size(), "task"),
                 " on ", text::count(map.nodes(), "node"), ", ", map.to_string(), " (", plan.placement.source,
                 ")\nrendezvous ", plan.rendezvous.address, ":", std::to_string(plan.rendezvous.port), "\n"});
}

std::string to_table(std::span<const ExplainedTask> tasks) {
  std::vector<std::vector<std::string>> rows = {{"RANK", "HOST", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK"}};
  for (const ExplainedTask& task : tasks) rows.push_back(table_row(task));
  return format_table(rows);
}

}  // namespace amldist::tools
