#include "aml_dist/trace/running_step.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/text/tasks_per_node.hpp"
#include "base/text/text.hpp"
#include "launch/rendezvous/stamp.hpp"
#include "shared/json.hpp"

namespace amldist::tools {
namespace {

using text::concat;

std::optional<std::uint32_t> number_of(const EnvironmentReader& environment, std::string_view name) {
  const auto number = text::to_number(environment(name).value_or(""), most_tasks);
  return number ? std::optional(static_cast<std::uint32_t>(*number)) : std::nullopt;
}

std::string step_id_of(const EnvironmentReader& environment) {
  const auto hidden = environment("AMLDIST_HIDDEN_SLURM_STEP_ID");  // hidden from a per-node launcher
  return hidden ? *hidden : environment("SLURM_STEP_ID").value_or("");
}

/// Whether the stamp is of this step: an inner step without the option inherits that of the outer one. The components
/// of a heterogeneous job stamp their own job ids, while SLURM_JOB_ID is the first one's.
bool is_of_this_step(const launch::Stamp& stamp, const EnvironmentReader& environment) {
  const auto words = text::split(stamp.step(), '.');
  const bool same_job = words[0] == environment("SLURM_JOB_ID") || environment("SLURM_HET_SIZE");
  return words.size() == 2 && same_job && words[1] == step_id_of(environment);
}

Result<launch::Stamp> read_stamp(const EnvironmentReader& environment) {
  if (!environment("SLURM_JOB_ID") || !environment("SLURM_PROCID") || step_id_of(environment).empty()) {
    return Error{Errc::invalid_argument,
                 "no layout is given and this process is not a task of a step: give --nodelist and --tasks-per-node, "
                 "or run this "
                 "with srun --aml-dist=KIND"};
  }
  auto stamp = launch::Stamp::read(environment);
  if (!stamp || !is_of_this_step(*stamp, environment)) {
    return Error{Errc::unavailable,
                 "this step was started without --aml-dist: start it with srun --aml-dist=KIND, or give --nodelist and "
                 "--tasks-per-node"};
  }
  return std::move(*stamp);
}

/// srun's own variables distinguish a per-node launcher from a rank: RANK may be torchrun's.
bool is_per_node(const EnvironmentReader& environment) {
  return environment("AMLDIST_HIDDEN_SLURM_STEP_ID") || environment("PET_NNODES") || !environment("RANK");
}

/// The roles that TF_CONFIG lists, in the order of their ranks, and the keys that count them.
constexpr std::array<std::pair<const char*, const char*>, 3> listed_roles = {
    {{"chief", "chief_count"}, {"worker", "worker_count"}, {"ps", "parameter_server_count"}}};

/// The cluster of TF_CONFIG.
Result<nlohmann::ordered_json> read_cluster(const EnvironmentReader& environment) {
  const auto config = commands::parse_json(environment("TF_CONFIG").value_or(""));
  const auto cluster = config.is_object() ? config.find("cluster") : config.end();
  if (config.is_discarded() || !config.is_object() || cluster == config.end()) {
    return Error{Errc::mismatch, "TF_CONFIG cannot be read"};
  }
  return *cluster;
}

/// The count keys that TF_CONFIG was made from: its lists are complete except for the evaluator.
Result<std::string> role_counts(const EnvironmentReader& environment, std::uint32_t tasks) {
  const auto cluster = read_cluster(environment);
  if (!cluster) return cluster.error();
  std::string keys;
  std::size_t named = 0;
  for (const auto& [role, key] : listed_roles) {
    const std::size_t count = cluster->contains(role) ? cluster->at(role).size() : 0;
    keys += concat({",", key, "=", std::to_string(count)});
    named += count;
  }
  return concat({keys, ",evaluator_count=", std::to_string(tasks - std::min<std::size_t>(named, tasks))});
}

/// "host:port" of each rank that TF_CONFIG lists.
std::vector<std::string> listed_endpoints(const nlohmann::ordered_json& cluster) {
  std::vector<std::string> endpoints;
  for (const auto& [role, key] : listed_roles) {
    if (!cluster.contains(role)) continue;
    for (const auto& entry : cluster.at(role)) endpoints.push_back(entry.is_string() ? entry.get<std::string>() : "");
  }
  return endpoints;
}

/// How TF_CONFIG names the nodes. A node that only has an evaluator is not named.
launch::NodeHosts own_node_hosts(const EnvironmentReader& environment, const launch::Placement& placement) {
  const auto cluster = read_cluster(environment);
  if (!cluster) return {};
  const launch::TaskMap& map = placement.map;
  const std::vector<std::string> endpoints = listed_endpoints(*cluster);
  std::vector<Ipv4> addresses(placement.hosts.size(), Ipv4{});
  bool has_addresses = false;
  std::string suffix;
  for (std::uint32_t rank = 0; rank < std::min<std::size_t>(endpoints.size(), map.size()); ++rank) {
    const std::uint32_t node = map.node_of(rank);
    if (node == map.node_of(0)) continue;
    const std::string host = endpoints[rank].substr(0, endpoints[rank].find(':'));
    const std::string name = placement.hosts.at(node);
    if (const auto address = Ipv4::parse(host)) {
      addresses[node] = *address;
      has_addresses = true;
    } else if (host.starts_with(name)) {
      suffix = host.substr(name.size());
    }
  }
  return has_addresses ? launch::NodeHosts::addresses(addresses) : launch::NodeHosts::names(suffix);
}

/// The option that was given to srun, as far as a task can tell.
Result<launch::Spec> own_spec(const launch::Stamp& stamp, const EnvironmentReader& environment, std::uint32_t tasks) {
  std::string option(stamp.value_of("kind").value_or(""));
  if (const auto backend = environment("AMLDIST_BACKEND")) option += concat({",backend=", *backend});
  if (option == "tensorflow") {
    const auto counts = role_counts(environment, tasks);
    if (!counts) return counts.error();
    option += *counts;
  } else if (is_per_node(environment)) {
    option += ",launch=per-node";
    if (!environment("AMLDIST_HIDDEN_SLURM_STEP_ID")) option += ",slurm_env=keep";
    if (const auto each = environment("PET_NPROC_PER_NODE")) option += concat({",nproc_per_node=", *each});
  }
  return launch::parse_spec(option);
}

/// What aml-dist set here. Under a per-node launcher the ranks, if any, are the launcher's.
EnvironmentPatch own_environment(const EnvironmentReader& environment) {
  constexpr std::array<std::string_view, 6> launchers = {
      "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE"};
  if (!is_per_node(environment)) return launch::own_variables(environment);
  return launch::own_variables([&](std::string_view name) {
    return std::ranges::find(launchers, name) == launchers.end() ? environment(name) : std::nullopt;
  });
}

/// This task's numbers. SLURM_LOCALID counts within a component, so LOCAL_RANK is preferred if aml-dist set it.
Result<ExplainedTask> read_own_task(const launch::Stamp& stamp, const EnvironmentReader& environment) {
  const bool alone = is_per_node(environment);  // one task on each node
  const auto rank = number_of(environment, "SLURM_PROCID");
  const auto size = number_of(environment, "SLURM_STEP_NUM_TASKS");
  const auto local_rank = alone ? std::optional(0U) : number_of(environment, "LOCAL_RANK");
  const auto local_size = alone ? std::optional(1U) : number_of(environment, "LOCAL_WORLD_SIZE");
  const auto node_rank = number_of(environment, "NODE_RANK");
  const auto nodes = text::to_number(stamp.value_of("nodes").value_or(""), most_tasks);
  const auto host = environment("SLURMD_NODENAME");
  if (!rank || !size || !local_rank || !local_size || !node_rank || !nodes || !host) {
    return Error{
        Errc::mismatch,
        "the variables that srun and aml-dist gave this task are no longer there: run this before they change"};
  }
  return ExplainedTask{{*rank, *size, *local_rank, *local_size, *node_rank, static_cast<std::uint32_t>(*nodes)},
                       *host,
                       own_environment(environment)};
}

/// The exact layout, if the stamp has it and this node's and this task's numbers agree with it.
Result<launch::Placement> own_placement(const launch::Stamp& stamp, const EnvironmentReader& environment,
                                        const ExplainedTask& own) {
  const auto map = stamp.value_of("map");
  if (!map) {
    return Error{Errc::unavailable,
                 "the layout of a heterogeneous or very irregular step is not in the environment of its tasks"};
  }
  std::vector<std::uint32_t> ranks;
  const std::string ranks_text = environment("SLURM_GTIDS").value_or("");
  for (const std::string_view rank : text::split(ranks_text, ',')) {
    const auto number = text::to_number(rank, most_tasks);
    if (!number) return Error{Errc::unavailable, "SLURM_GTIDS is not set"};
    ranks.push_back(static_cast<std::uint32_t>(*number));
  }
  const auto node = number_of(environment, "SLURM_NODEID");
  if (!node || *node >= own.identity.nodes) return Error{Errc::mismatch, "SLURM_NODEID is not a node of the step"};
  auto placement =
      launch::read_placement(environment, std::string(*map), {*node, own.identity.nodes, own.identity.size, ranks});
  if (!placement) return placement.error();
  const std::uint32_t rank = own.identity.rank;
  if (rank >= own.identity.size || launch::identity_of(placement->map, rank) != own.identity ||
      placement->host_of(rank) != own.host) {
    return Error{Errc::mismatch, "the layout in AMLDIST_STAMP contradicts this task's own variables"};
  }
  return placement;
}

Result<launch::Rendezvous> own_rendezvous(const launch::Stamp& stamp) {
  const auto port = text::to_number(stamp.value_of("MASTER_PORT").value_or(""), 65535);
  const auto address = stamp.value_of("MASTER_ADDR");
  if (!address || !port) return Error{Errc::unavailable, "AMLDIST_STAMP names no master"};
  return launch::Rendezvous{std::string(*address), static_cast<std::uint16_t>(*port)};
}

/// Other tasks have this task's environment except for the variables that differ between tasks.
std::optional<std::string> inherited_by_others(const EnvironmentReader& environment, std::string_view name) {
  constexpr std::array<std::string_view, 6> shared = {"CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
                                                      "HIP_VISIBLE_DEVICES",  "ZE_AFFINITY_MASK",
                                                      "SLURM_STEP_GPUS",      "SLURM_GPUS_PER_TASK"};
  if (std::ranges::find(shared, name) != shared.end()) return environment(name);
  for (const std::string_view hidden : {"SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_ID"}) {
    if (name == hidden) return environment(concat({"AMLDIST_HIDDEN_", name}));
  }
  return std::nullopt;
}

Result<Explanation> explain_whole(const launch::Stamp& stamp, const EnvironmentReader& environment,
                                  const ExplainedTask& own) {
  auto spec = own_spec(stamp, environment, own.identity.size);
  if (!spec) return spec.error();
  auto placement = own_placement(stamp, environment, own);
  if (!placement) return placement.error();
  auto rendezvous = own_rendezvous(stamp);
  if (!rendezvous) return rendezvous.error();
  if (spec->kind == launch::Kind::tensorflow) rendezvous->node_hosts = own_node_hosts(environment, *placement);
  if (auto status = check_counts(*spec, placement->map); !status) return status.error();
  const auto inherited = [environment](std::uint32_t) -> EnvironmentReader {
    return [environment](std::string_view name) { return inherited_by_others(environment, name); };
  };
  return Explanation{launch::StepPlan{std::move(*spec), std::move(*placement), std::move(*rendezvous), stamp.step()},
                     inherited, own};
}

}  // namespace

Result<RunningStep> read_running_step(const EnvironmentReader& environment, const std::string& option) {
  const auto stamp = read_stamp(environment);
  if (!stamp) return stamp.error();
  auto own = read_own_task(*stamp, environment);
  if (!own) return own.error();
  auto whole = explain_whole(*stamp, environment, *own);
  if (!whole) return RunningStep{std::move(*own), std::nullopt, whole.error().message};
  if (!option.empty()) {
    auto spec = launch::parse_spec(option);
    if (!spec) return spec.error();
    if (auto status = check_counts(*spec, whole->plan.placement.map); !status) return status.error();
    whole->plan.spec = std::move(*spec);
    whole->own.reset();  // under another option this task's variables would differ
  }
  return RunningStep{std::move(*own), std::move(*whole), {}};
}

}  // namespace amldist::tools
