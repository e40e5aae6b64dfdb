#include "spank/slurm/step_reader.hpp"

#include <algorithm>
#include <limits>

#include "base/net/own_network.hpp"
#include "base/text/text.hpp"
#include "launch/rendezvous/master_address.hpp"
#include "launch/site/rdma_policy.hpp"
#include "spank/slurm/slurm_api.hpp"
#include "step/messages/launch_record.hpp"

namespace amldist::spank {
namespace {

using text::concat;

std::optional<std::uint32_t> read_number(const EnvironmentReader& environment, std::string_view name) {
  const auto number = text::to_number(environment(name).value_or(""), std::numeric_limits<std::uint32_t>::max());
  return number ? std::optional(static_cast<std::uint32_t>(*number)) : std::nullopt;
}

Error not_ours(std::string_view why) {
  return {Errc::unavailable,
          concat({why, ": the srun that starts the step needs the aml-dist plugin too, with the same settings"})};
}

Result<StepReading> read_from_record(const NodeItems& items, const EnvironmentReader& environment) {
  const auto text = environment(step::launch_record_variable);
  if (!text) return not_ours("srun sent no launch record");
  auto record = step::LaunchRecord::parse(*text);
  if (!record) return record.error();
  if (record->job_id != items.job_id || record->step_id != items.step_id) {
    return not_ours("the launch record belongs to another step");
  }
  auto placement =
      launch::read_placement(environment, record->map, {items.node, items.nodes, items.tasks, items.ranks});
  if (!placement) return placement.error();
  if (!record->peers.fits(placement->hosts)) return not_ours("the launch record is about other nodes");
  return StepReading{std::move(*placement), std::move(record->address),  std::move(record->ports), items.job_id,
                     items.ranks,           std::move(record->features), std::move(record->peers)};
}

/// The part of a heterogeneous step that this slurmstepd may have to run.
struct NodeShare {
  std::vector<std::uint32_t> ranks;  ///< of its tasks, over the whole step
  std::string host;
};

/// The shares that fit what Slurm says about this component: one, if the components are jobs of their own.
std::vector<NodeShare> possible_shares(const step::LaunchRecord& record, const NodeItems& items) {
  std::vector<NodeShare> shares;
  std::uint32_t first_rank = 0;
  for (const launch::Component& each : record.components) {
    const auto hosts = Hostlist::parse(each.hosts);
    if (each.job_id == items.job_id && each.tasks == items.tasks && hosts && hosts->size() == items.nodes) {
      NodeShare share{items.ranks, hosts->at(items.node)};
      for (std::uint32_t& rank : share.ranks) rank += first_rank;
      shares.push_back(std::move(share));
    }
    first_rank += each.tasks;
  }
  return shares;
}

/// This slurmstepd's share; nullopt if the record does not say.
std::optional<NodeShare> find_share(const step::LaunchRecord& record, const NodeItems& items,
                                    const launch::Placement& placement) {
  std::vector<NodeShare> shares = possible_shares(record, items);
  if (shares.size() > 1) {  // components inside one job never share a node, so the node's name identifies the share
    std::erase_if(shares, [own = own_host_name()](const NodeShare& share) { return share.host != own; });
  }
  if (shares.size() != 1) return std::nullopt;
  const bool agrees = std::ranges::all_of(shares.front().ranks, [&](std::uint32_t rank) {
    return rank < placement.map.size() && placement.host_of(rank) == shares.front().host;
  });
  return agrees ? std::optional(std::move(shares.front())) : std::nullopt;
}

/// From the record of a heterogeneous step. nullopt for a record of another step, which a process of the user may have
/// sent.
std::optional<StepReading> read_from_components(const step::LaunchRecord& record, const NodeItems& items,
                                                std::uint32_t tasks) {
  const auto has_us =
      std::ranges::find(record.components, items.job_id, &launch::Component::job_id) != record.components.end();
  if (record.step_id != items.step_id || !has_us) return std::nullopt;
  auto hosts = distinct_hosts(record.components);
  if (!hosts) return std::nullopt;
  auto map = launch::TaskMap::parse(record.map, tasks, static_cast<std::uint32_t>(hosts->size()));
  if (!map || !record.peers.fits(*hosts)) return std::nullopt;
  launch::Placement placement{std::move(*hosts), std::move(*map), launch::Provenance::exact,
                              "srun's record of the components", false};
  auto share = find_share(record, items, placement);
  return StepReading{std::move(placement),
                     record.address,
                     record.ports,
                     record.components.front().job_id,
                     share ? std::move(share->ranks) : std::vector<std::uint32_t>{},
                     record.features,
                     record.peers};
}

/// srun's record of all components reaches one of them in its environment; the others ask for it.
std::optional<StepReading> read_from_srun(const NodeItems& items, std::uint32_t tasks,
                                          const EnvironmentReader& environment,
                                          const std::optional<step::SrunLink>& srun) {
  constexpr int attempts = 20;
  const auto read = [&](const std::optional<std::string>& text) -> std::optional<StepReading> {
    const auto record =
        text ? step::LaunchRecord::parse(*text) : Result<step::LaunchRecord>(Error{Errc::unavailable, ""});
    return record ? read_from_components(*record, items, tasks) : std::nullopt;
  };
  if (auto found = read(environment(step::launch_record_variable))) return found;
  if (!srun) return std::nullopt;
  return read(ask(*srun, step::MessageType::which_record, step::Subject::record, attempts));
}

/// What srun's record would say about a step with this layout: every node computes the same.
Result<StepReading> read_without_record(const launch::Spec& spec, const launch::SitePolicy& policy,
                                        launch::Placement placement, std::uint32_t job_id,
                                        std::vector<std::uint32_t> ranks) {
  const launch::NetworkView network = launch::this_machine(slurm_node_ipv4);
  auto address = choose_master_address(spec, policy, placement, network);
  if (!address) return address.error();
  auto peers = choose_node_hosts(spec, policy, placement, *address, network);
  if (!peers) return peers.error();
  auto features = read_features(policy, spec, placement.hosts);
  if (!features) return features.error();
  return StepReading{
      std::move(placement), std::move(*address), policy.ports.without(launch::kernel_ports()), job_id, std::move(ranks),
      std::move(*features), std::move(*peers)};
}

/// Used if srun does not answer: every node of every component asks slurmctld, and gets the same result. This runs as
/// root, so variables of the user's environment about the components, such as SLURM_JOB_ID_HET_GROUP_0, are ignored.
Result<StepReading> read_components_from_controller(const launch::Spec& spec, const launch::SitePolicy& policy,
                                                    const NodeItems& items, std::uint32_t tasks) {
  auto layout = fetch_heterogeneous_layout(items.job_id, items.step_id, {.jobs = std::nullopt, .tasks = tasks});
  if (!layout) return layout.error();
  return read_without_record(spec, policy, std::move(layout->placement), layout->components.front().job_id, {});
}

/// Used if no srun made a record: every node asks slurmctld, or the job's step manager.
Result<StepReading> read_from_controller(const launch::Spec& spec, const launch::SitePolicy& policy,
                                         const NodeItems& items) {
  auto placement = fetch_step_layout(items.job_id, items.step_id);
  if (!placement) return placement.error();
  const bool agrees = placement->map.size() == items.tasks && placement->hosts.size() == items.nodes;
  if (!agrees) return Error{Errc::mismatch, "Slurm's layout of the step does not fit the step's tasks and nodes"};
  return read_without_record(spec, policy, std::move(*placement), items.job_id, items.ranks);
}

}  // namespace

Result<launch::NodeFeatures> read_features(const launch::SitePolicy& policy, const launch::Spec& spec,
                                           const Hostlist& hosts) {
  launch::NodeFeatures out;
  if (!asks_for_features(policy, spec)) return out;
  const auto features = fetch_node_features(hosts);
  if (!features) return features.error();
  for (std::uint32_t node = 0; node < features->size(); ++node) {
    for (const std::string& feature : features_with_rules(policy, (*features)[node])) out.add(feature, node);
  }
  return out;
}

Result<NodeItems> read_items(const Handle& handle) {
  NodeItems items;
  struct Field {
    spank_item_t item;
    const char* name;
    std::uint32_t* value;
  };
  std::uint32_t local_tasks = 0;
  const Field fields[] = {
      {S_JOB_ID, "S_JOB_ID", &items.job_id},
      {S_JOB_STEPID, "S_JOB_STEPID", &items.step_id},
      {S_JOB_NODEID, "S_JOB_NODEID", &items.node},
      {S_JOB_NNODES, "S_JOB_NNODES", &items.nodes},
      {S_JOB_TOTAL_TASK_COUNT, "S_JOB_TOTAL_TASK_COUNT", &items.tasks},
      {S_JOB_LOCAL_TASK_COUNT, "S_JOB_LOCAL_TASK_COUNT", &local_tasks},
  };
  for (const Field& field : fields) {
    const auto number = handle.number(field.item, field.name);
    if (!number) return number.error();
    *field.value = *number;
  }
  if (local_tasks == 0 || local_tasks > items.tasks || items.node >= items.nodes) {
    return Error{Errc::mismatch, "Slurm's numbers for this node's part of the step contradict each other"};
  }
  items.ranks.reserve(local_tasks);
  for (std::uint32_t local = 0; local < local_tasks; ++local) {
    const auto rank = handle.global_rank(local);
    if (!rank) return rank.error();
    items.ranks.push_back(*rank);
  }
  return items;
}

Result<StepReading> read_step(const launch::Spec& spec, const launch::SitePolicy& policy, const NodeItems& items,
                              const EnvironmentReader& environment, const std::optional<step::SrunLink>& srun) {
  const auto whole = read_number(environment, "SLURM_STEP_NUM_TASKS");
  if (!whole || *whole <= items.tasks) {
    const bool has_srun = environment(step::launch_record_variable) != step::no_srun_record;
    return has_srun ? read_from_record(items, environment) : read_from_controller(spec, policy, items);
  }
  if (auto reading = read_from_srun(items, *whole, environment, srun)) return std::move(*reading);
  return read_components_from_controller(spec, policy, items, *whole);
}

}  // namespace amldist::spank
