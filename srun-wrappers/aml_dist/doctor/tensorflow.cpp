// TensorFlow's TFConfigClusterResolver (tensorflow/python/distribute, 2.21): roles come from TF_CONFIG alone. And
// Keras, whose model.fit is examined separately.
#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "aml_dist/doctor/rules.hpp"
#include "base/text/text.hpp"

namespace amldist::doctor {
namespace {

using json = nlohmann::ordered_json;
using text::concat;

constexpr const char* leave_it = "leave TF_CONFIG to --aml-dist=tensorflow";
constexpr std::array<std::string_view, 4> roles = {"chief", "master", "worker", "ps"};

/// The addresses of a role; Azure ML and TensorFlow write a list, but an object of index to address is legal too.
std::vector<std::string> members(const json& cluster, std::string_view role) {
  std::vector<std::string> out;
  const auto found = cluster.find(std::string(role));
  if (found == cluster.end()) return out;
  for (const auto& entry : *found) out.push_back(entry.is_string() ? entry.get<std::string>() : std::string());
  return out;
}

struct TaskRole {
  std::string type;
  std::uint64_t index = 0;
};

std::optional<TaskRole> own_role(const json& config) {
  const auto task = config.find("task");
  if (task == config.end() || !task->is_object()) return std::nullopt;
  const auto type = task->find("type");
  const auto index = task->find("index");
  if (type == task->end() || !type->is_string() || index == task->end()) return std::nullopt;
  if (index->is_number_unsigned()) return TaskRole{type->get<std::string>(), index->get<std::uint64_t>()};
  const auto number = index->is_string() ? text::to_number(index->get<std::string>(), 1U << 26) : std::nullopt;
  return number ? std::optional(TaskRole{type->get<std::string>(), *number}) : std::nullopt;
}

FrameworkResult failed(FrameworkResult result, std::string reason) {
  return with(result, {Outcome::fails, std::move(reason), leave_it});
}

std::optional<Problem> wrong_addresses(const TaskContext& here, const std::vector<std::string>& all) {
  std::set<std::string> seen;
  for (const std::string& address : all) {
    if (!seen.insert(address).second) {
      return Problem{Outcome::fails,
                     concat({"TF_CONFIG gives ", text::quote(address), " to two tasks: Could not start gRPC server"}),
                     leave_it};
    }
    if (here.nodes() > 1 && is_loopback(address.substr(0, address.rfind(':')))) {
      return Problem{Outcome::hangs,
                     concat({"TF_CONFIG names ", text::quote(address), ", a different machine on each node"}),
                     leave_it};
    }
  }
  return std::nullopt;
}

/// Checks the whole cluster of TF_CONFIG, after this task has found its role in it.
FrameworkResult examine_cluster(const TaskContext& here, const json& cluster, const TaskRole& own,
                                FrameworkResult result) {
  std::vector<std::string> all;
  std::optional<std::uint64_t> rank;
  for (const std::string_view role : roles) {
    const auto addresses = members(cluster, role);
    if (role == own.type && own.index < addresses.size()) rank = all.size() + own.index;
    all.insert(all.end(), addresses.begin(), addresses.end());
  }
  if (members(cluster, "chief").size() > 1) return failed(result, "ValueError: There must be at most one 'chief' job");
  const bool evaluator = own.type == "evaluator";
  if (!rank && !evaluator) {
    return failed(result, concat({"ValueError: `task_type` ", text::quote(own.type), " with index ",
                                  std::to_string(own.index), " is not in TF_CONFIG's cluster"}));
  }
  result.rank = evaluator ? all.size() : *rank;
  result.size = all.size();
  if (!all.empty()) result.master = all.front();
  if (all.size() > here.tasks() && here.in_step()) {
    return with(result, {Outcome::hangs,
                         concat({"TF_CONFIG names ", text::count(all.size(), "task"), " but the step has ",
                                 std::to_string(here.tasks())}),
                         leave_it});
  }
  if (all.size() == 1 && here.tasks() > 1 && !evaluator) {
    return with(result, {Outcome::alone, concat({"TF_CONFIG names one task in each of ", std::to_string(here.tasks())}),
                         leave_it});
  }
  if (auto problem = wrong_addresses(here, all)) return with(result, std::move(*problem));
  return result;
}

}  // namespace

FrameworkResult examine_tensorflow(const TaskContext& here) {
  FrameworkResult result{.environment = "TFConfigClusterResolver"};
  const auto text = here.environment()("TF_CONFIG");
  const json config = json::parse(text.value_or("{}"), nullptr, false);
  if (config.is_discarded() || !config.is_object()) {
    return failed(result, "TF_CONFIG is not a JSON object: json.decoder.JSONDecodeError");
  }
  const auto cluster = config.find("cluster");
  if (cluster == config.end() || !cluster->is_object() || cluster->empty()) {
    result.rank = 0;
    result.size = 1;
    if (here.tasks() == 1) return result;
    return with(
        result,
        {Outcome::alone,
         concat({"without a cluster in TF_CONFIG each of ", text::count(here.tasks(), "task"), " is the only worker"}),
         "srun --aml-dist=tensorflow"});
  }
  const auto own = own_role(config);
  if (!own) return failed(result, "TF_CONFIG has no task with type and index");
  return examine_cluster(here, *cluster, *own, std::move(result));
}

FrameworkResult examine_keras(const TaskContext& here) {
  FrameworkResult result = examine_tensorflow(here);
  if (result.outcome != Outcome::fine || result.size == 1) return result;
  const Machine& machine = here.machine();
  const bool legacy = here.is_true("TF_USE_LEGACY_KERAS");
  if (legacy && machine.tf_keras && machine.tf_keras->empty()) {
    return with(result, {Outcome::fails, "TF_USE_LEGACY_KERAS=1 but the package tf-keras is missing: ImportError",
                         "pip install tf-keras"});
  }
  const bool old = machine.keras && machine.keras->starts_with("2.");
  if (legacy || old) return result;
  return with(result,
              {Outcome::warns,
               "model.fit of Keras 3 raises under MultiWorkerMirroredStrategy: ValueError: Attempt to convert a value "
               "(PerReplica:{...}) with an unsupported type",
               "pip install tf-keras, export TF_USE_LEGACY_KERAS=1; or write the loop with strategy.run"});
}

}  // namespace amldist::doctor
