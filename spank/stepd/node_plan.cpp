#include "spank/stepd/node_plan.hpp"
#include "spank/stepd/task_trace.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <span>

#include "base/net/own_network.hpp"
#include "base/text/text.hpp"
#include "launch/frameworks/launcher_daemons.hpp"
#include "launch/frameworks/verbose.hpp"
#include "launch/rendezvous/master_address.hpp"
#include "launch/site/rdma_policy.hpp"
#include "spank/slurm/slurm_api.hpp"
#include "spank/slurm/step_reader.hpp"
#include "spank/stepd/parameter_servers.hpp"
#include "spank/stepd/stepd_session.hpp"
#include "step/messages/end_record.hpp"
#include "step/messages/launch_record.hpp"
#include "step/messages/step_secret.hpp"

namespace amldist::spank {
namespace {

using text::concat;

/// The part of the plan that is the same on all nodes of the step, and this node's ranks.
struct Draft {
  launch::StepPlan step;
  std::vector<std::uint32_t> ranks;  ///< empty: only the tasks will know
  launch::NodeFeatures features;
};

Result<Draft> draft_plan(const StepdSession& session, const launch::Spec& spec, const NodeItems& items,
                         const EnvironmentReader& environment, std::vector<std::string>& notes) {
  auto step = read_step(spec, session.request.policy, items, environment, session.srun);
  if (!step) return step.error();
  if (auto counts = check_counts(spec, step->placement.map); !counts) return counts.error();
  const launch::RendezvousFacts facts{step->address, step->ports, launch::read_job_name(environment, step->job_id),
                                      items.step_id, step->peers};
  auto rendezvous = settle(spec, facts, environment, notes);
  if (!rendezvous) return rendezvous.error();
  return Draft{{spec, std::move(step->placement), std::move(*rendezvous),
                concat({std::to_string(items.job_id), ".", std::to_string(items.step_id)})},
               std::move(step->ranks),
               std::move(step->features)};
}

/// Whether MASTER_ADDR is an address of this node, rank 0's. One that the user set may belong to a server elsewhere.
bool master_is_ours(const launch::Rendezvous& meet, const std::string& host) {
  if (meet.address_origin == launch::Origin::computed || meet.address == host) return true;
  if (meet.address.starts_with(concat({host, "."}))) return true;
  const auto literal = Ipv4::parse(meet.address);
  return literal && is_own_address(*literal);
}

/// Ports that these ranks will listen on: rank 0's, and for TensorFlow one for each task.
std::vector<std::uint16_t> ports_of(const launch::StepPlan& plan, std::span<const std::uint32_t> ranks,
                                    const std::string& host) {
  std::vector<std::uint16_t> ports;
  for (const std::uint32_t rank : ranks) {
    const bool listens = rank == 0 ? master_is_ours(plan.rendezvous, host) : plan.spec.kind == launch::Kind::tensorflow;
    if (!listens) continue;
    ports.push_back(static_cast<std::uint16_t>(plan.rendezvous.port + plan.placement.map.local_rank_of(rank)));
  }
  return ports;
}

Result<std::vector<launch::PortClaim>> claim_ports(const launch::StepPlan& plan, std::span<const std::uint32_t> ranks,
                                                   const Handle& handle) {
  const std::string host = plan.placement.host_of(ranks.front());
  const std::vector<std::uint16_t> ports = ports_of(plan, ranks, host);
  std::vector<launch::PortClaim> claims;
  if (ports.empty()) return claims;
  const auto user = handle.number(S_JOB_UID, "S_JOB_UID");
  if (!user) return user.error();
  if (auto may = launch::may_listen(*user, *std::ranges::min_element(ports), host); !may) return may.error();
  for (const std::uint16_t port : ports) {
    auto claim = launch::PortClaim::take(port, host);
    if (!claim) return claim.error();
    claims.push_back(std::move(*claim));
  }
  return claims;
}

/// The rank whose node has the stand-in where no srun waits: rank 0; or the first parameter server, which is there
/// until all of them may end.
std::uint32_t rank_of_stand_in(const launch::StepPlan& plan) { return has_servers(plan) ? first_server(plan) : 0; }

/// The line for the user where the stand-in cannot be opened.
std::string no_stand_in(const launch::StepPlan& plan, std::string_view why) {
  return concat({"no srun waits for this step, and no node can stand in for it (", why,
                 "): the first failure is not reported",
                 has_servers(plan) ? ", and parameter servers do not end by themselves: end the step when its work is "
                                     "done, or start it without --async"
                                   : ""});
}

/// Where the stand-in listens, as every node computes it: with the token that srun sent, at the number of the
/// TCP port that its rank has for itself.
Result<step::SrunLink> link_to_stand_in(const launch::StepPlan& plan, const EnvironmentReader& environment) {
  const auto channel = step::ReportChannel::parse(environment(step::report_variable).value_or(""));
  if (!channel) return Error{Errc::unavailable, "srun sent no token"};
  const std::uint32_t rank = rank_of_stand_in(plan);
  const auto address = slurm_node_address(plan.placement.host_of(rank));
  if (!address) return address.error();
  const std::uint32_t port = plan.rendezvous.port + plan.placement.map.local_rank_of(rank);
  if (port > std::numeric_limits<std::uint16_t>::max()) return Error{Errc::unavailable, "no port is left for it"};
  return step::SrunLink{*address, {static_cast<std::uint16_t>(port), channel->token}};
}

std::vector<std::string> record_files(const Handle& handle) {
  auto file = handle.variable(step::end_record_variable);
  return file && !file->empty() ? std::vector{std::move(*file)} : std::vector<std::string>();
}

Result<void> open_stand_in(StepdSession& session, const launch::StepPlan& plan, const step::SrunLink& link,
                           const NodeItems& items, const Handle& handle) {
  const auto user = handle.number(S_JOB_UID, "S_JOB_UID");
  if (!user) return user.error();
  const auto group = handle.number(S_JOB_GID, "S_JOB_GID");
  if (!group) return group.error();
  const std::string host = plan.placement.host_of(rank_of_stand_in(plan));
  if (auto may = launch::may_listen(*user, link.channel.port, host); !may) return may.error();
  auto opened = StepServer::open({link.channel.port, link.channel.port}, link.channel.token);
  if (!opened) return opened.error();
  session.stand_in = std::move(*opened);
  session.served = {.job_id = items.job_id,
                    .step_id = items.step_id,
                    .tasks = plan.placement.map.size(),
                    .nodes = plan.placement.map.nodes(),
                    .hosts = {{plan.placement.hosts, items.job_id}},
                    .record_files = record_files(handle),
                    .rights = UserRights{*user, *group},
                    .folder = handle.variable("PWD").value_or("/")};
  return {};
}

/// Where no srun waits for the step: finds the stand-in, and opens it where it is to be on this node. Returns the line
/// for the user where there can be none; empty otherwise. An error where this node cannot open it: the others wait for
/// it before they start their tasks.
Result<std::string> find_stand_in(StepdSession& session, const Draft& draft, const NodeItems& items,
                                  const Handle& handle) {
  const launch::StepPlan& plan = draft.step;
  const bool is_whole_step = plan.placement.map.size() == items.tasks;
  if (session.has_srun || !is_whole_step || draft.ranks.empty()) return std::string();
  const bool is_here = std::ranges::find(draft.ranks, rank_of_stand_in(plan)) != draft.ranks.end();
  const auto link = link_to_stand_in(plan, handle.environment());
  if (!link) return is_here ? no_stand_in(plan, link.error().message) : std::string();
  session.srun = *link;
  if (!is_here) return std::string();
  const auto opened = open_stand_in(session, plan, *link, items, handle);
  if (opened) return std::string();
  return Error{opened.error().code,
               concat({"no srun waits for this step, and ", plan.placement.host_of(rank_of_stand_in(plan)),
                       " cannot stand in for it (", opened.error().message,
                       "): its tasks do not start: choose another master_port=, or start it without --async"})};
}

/// Tells srun the address of rank 0's node, or that there is none, so that the other nodes stop waiting.
Result<void> announce_address(const std::optional<step::SrunLink>& srun, const launch::StepPlan& plan,
                              const Result<Ipv4>& address, const Error& unheard) {
  if (!srun) return address ? Result<void>(unheard) : address.error();
  const std::uint64_t token = srun->channel.token;
  const bool told = tell(*srun, address ? to_datagram(step::Subject::address, plan.rendezvous.address, token)
                                        : to_datagram(step::MessageType::no_address, token));
  if (!address) return address.error();
  return told ? Result<void>() : unheard;
}

/// Where the site names an interface ("@IFACE"): replaces it by an address. Rank 0's node looks it up and tells srun,
/// which tells the other nodes.
Result<void> learn_address(const StepdSession& session, launch::StepPlan& plan, std::span<const std::uint32_t> ranks) {
  const auto interface = launch::interface_to_ask(plan.rendezvous.address);
  if (!interface) return {};
  const Error unheard{Errc::unavailable, concat({"rank 0's node ", plan.placement.master_host(),
                                                 " could not send the other nodes, over srun, the address of ",
                                                 "interface ", *interface, ": use master_addr=name, or try again"})};
  if (!ranks.empty() && ranks.front() == 0) {
    const auto address = address_of_interface(*interface, session.request.policy.network);
    if (address) plan.rendezvous.address = address->to_string();
    if (plan.placement.map.size() == ranks.size()) return address ? Result<void>() : address.error();
    return announce_address(session.srun, plan, address, unheard);
  }
  constexpr int attempts = 100;  // ten seconds: nodes do not come to a step at the same moment
  auto address = session.srun ? ask(*session.srun, step::MessageType::which_address, step::Subject::address, attempts)
                              : std::nullopt;
  if (address && address->empty()) return Error{Errc::unavailable, ""};  // the user reads it from rank 0's node
  if (!address || !Ipv4::parse(*address)) return unheard;
  plan.rendezvous.address = std::move(*address);
  return {};
}

/// The address of another node of the step; nullopt when Slurm has none.
std::optional<Ipv4> address_of_a_peer(const launch::Placement& placement, std::uint32_t node) {
  const std::uint32_t peer = placement.map.node_at(placement.map.node_rank_of(node) == 0 ? 1 : 0);
  const auto address = slurm_node_address(placement.hosts.at(peer));
  return address ? std::optional(*address) : std::nullopt;
}

/// For nodes whose own name is loopback (Debian's 127.0.1.1 in /etc/hosts): such a name must not become MASTER_ADDR,
/// and Gloo, which would look it up, is told the interface.
Result<void> handle_loopback_name(launch::StepPlan& plan, std::uint32_t node, const EnvironmentReader& environment,
                                  std::vector<std::string>& notes) {
  if (plan.placement.map.nodes() == 1) return {};
  const auto is_loopback = [](std::string_view name) {
    const auto address = hosts_file_address(name);
    return address && address->is_loopback();
  };
  const launch::Rendezvous& meet = plan.rendezvous;
  const bool has_master = plan.placement.map.node_of(0) == node;
  if (has_master && meet.address_origin == launch::Origin::computed && !Ipv4::parse(meet.address) &&
      is_loopback(meet.address)) {
    return Error{Errc::unavailable,
                 concat({"MASTER_ADDR=", meet.address, " is ", hosts_file_address(meet.address)->to_string(),
                         " in /etc/hosts on ", plan.placement.hosts.at(node),
                         ", so the other nodes could not reach it: use master_addr=ip, or correct that file"})};
  }
  launch::NetworkView network;
  network.address_of_node = slurm_node_address;  // no name server: slurmstepd must not wait for one
  if (auto reached = refuse_loopback(meet, plan.placement, network); has_master && !reached) return reached;
  if (!is_loopback(own_host_name())) return {};
  const auto peer = address_of_a_peer(plan.placement, node);
  if (!peer || peer->is_loopback()) return {};
  if (auto interface = interface_towards(*peer)) plan.gloo_interface = std::move(*interface);
  const auto chosen = environment("GLOO_SOCKET_IFNAME");
  if (has_master && chosen && *chosen != plan.gloo_interface) {
    notes.push_back(
        concat({"GLOO_SOCKET_IFNAME=", *chosen, " is set by you and is kept, but the interface to the other nodes is ",
                plan.gloo_interface}));
  }
  return {};
}

/// Removes what srun left in the environment: it may have opened its channel and made a secret before it knew the
/// partition, and with it whether the step concerns us.
Result<void> remove_variables_of_srun(const Handle& handle) {
  EnvironmentPatch patch;
  for (const char* const name : {step::report_variable, step::launch_record_variable}) {
    if (handle.variable(name)) patch.unset(name);
  }
  step::give_secret({}, handle.environment(), patch);
  if (auto whole = handle.environment_was_read(); !whole) return whole;
  return handle.apply(patch);
}

/// The part of the fabric's verification that is done before the fork; nullopt where nobody wants it.
std::optional<FabricPlan> plan_verification(const launch::SitePolicy& site, const Draft& draft, std::uint32_t node,
                                            const Handle& handle) {
  const std::string partition = handle.variable("SLURM_JOB_PARTITION").value_or("");
  const launch::Spec& spec = draft.step.spec;
  const launch::RdmaPolicy rdma = choose_rdma(site, spec, partition, draft.features).policy;
  const launch::RdmaPolicy health = choose_health(site, spec, partition);
  if (rdma == launch::RdmaPolicy::off && health == launch::RdmaPolicy::off) return std::nullopt;
  const FabricWishes wishes{rdma, health, choose_pairs(site, spec, partition, rdma),
                            rdma_sku(site, partition, draft.features, node)};
  return plan_fabric(site, wishes, {node, draft.step.placement}, handle);
}

/// Until 23.02 Slurm writes the environment of an OCI container (--container) before any plugin of a task runs: the
/// program would have the image's numbers, or none.
Result<void> refuse_container_without_environment(const Handle& handle) {
  constexpr bool containers_get_the_tasks_environment = SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0);
  if (containers_get_the_tasks_environment || !handle.variable("SLURM_CONTAINER")) return {};
  return Error{
      Errc::unavailable,
      "--container: before 23.02 Slurm gives a container no variable of a plugin, so its tasks would not know their "
      "ranks: use pyxis, or start the container inside the task"};
}

/// Tells srun that this node's tasks will have their environment; where the ranks are not known yet, the tasks do. A
/// stand-in answers only later.
void report_own_node(StepdSession& session, const launch::StepPlan& plan, std::span<const std::uint32_t> ranks) {
  if (!session.srun) return;
  session.gate = StartGate::make();
  if (ranks.empty()) return;
  constexpr std::chrono::milliseconds patience{1000};
  const std::string host = plan.placement.host_of(ranks.front());
  const std::string report = to_datagram(step::Subject::here, host, session.srun->channel.token);
  if (!session.has_srun) return send_without_reply(*session.srun, report);
  const auto answer = report_node(*session.srun, host, patience, false);
  if (answer == step::MessageType::start) session.gate->state.store(StartGate::State::open);
}

/// For a step that gets a kind.
Result<NodePlan> plan_node(StepdSession& session, const launch::Spec& spec, const Handle& handle) {
  if (auto heard = refuse_container_without_environment(handle); !heard) return heard.error();
  const auto items = read_items(handle);
  if (!items) return items.error();
  std::vector<std::string> notes;
  auto draft = draft_plan(session, spec, *items, handle.environment(), notes);
  if (auto whole = handle.environment_was_read(); !whole) return whole.error();
  if (!draft) return draft.error();
  auto& [step, ranks, features] = *draft;
  auto no_stand_in = find_stand_in(session, *draft, *items, handle);
  if (!no_stand_in) return no_stand_in.error();
  report_own_node(session, step, ranks);
  if (auto learned = learn_address(session, step, ranks); !learned) return learned.error();
  // The tasks of a heterogeneous step whose srun does not answer learn their ranks later than this: then nothing is
  // checked or claimed.
  const std::uint32_t node = ranks.empty() ? items->node : step.placement.map.node_of(ranks.front());
  std::vector<launch::PortClaim> claims;
  if (!ranks.empty()) {
    if (auto done = handle_loopback_name(step, node, handle.environment(), notes); !done) return done.error();
    auto claimed = claim_ports(step, ranks, handle);
    if (!claimed) return claimed.error();
    claims = std::move(*claimed);
  }
  auto fabric = plan_verification(session.request.policy, *draft, node, handle);
  std::string secret = step::read_secret(handle.environment());
  if (auto whole = handle.environment_was_read(); !whole) return whole.error();
  const bool is_whole_step = step.placement.map.size() == items->tasks;
  std::string host = step.placement.hosts.at(node);
  return NodePlan{std::move(step),
                  is_whole_step,
                  std::move(claims),
                  std::move(notes),
                  std::move(fabric),
                  std::move(secret),
                  std::move(host),
                  ranks,
                  choose_trace(session.request.policy, spec, handle.variable("SLURM_JOB_PARTITION").value_or("")),
                  find_trace_libraries(session.request.policy.trace_libraries),
                  session.request.policy.secret == launch::SecretPolicy::require,
                  std::move(*no_stand_in)};
}

/// Whether srun, whose settings are whole, gave the step a kind of which this node's settings may not tell.
bool has_kind_only_in_srun(const StepRequest& request, const Handle& handle) {
  return !request.settings_are_usable() && !request.option && handle.variable(step::launch_record_variable).has_value();
}

PlanOutcome plan(StepdSession& session, const Handle& handle) {
  const auto spec = session.request.spec_in_partition(handle.variable("SLURM_JOB_PARTITION").value_or(""));
  if (!spec) return spec.error();
  const bool has_no_kind = spec->kind == launch::Kind::none && !has_kind_only_in_srun(session.request, handle);
  if (has_no_kind || launch::is_launcher_daemon(handle.program())) {
    const auto removed = remove_variables_of_srun(handle);
    return removed ? PlanOutcome(NotConcerned{}) : PlanOutcome(removed.error());
  }
  if (handle.variable(step::launch_record_variable) == step::refused_record) return RefusedBySrun{};
  session.has_srun = handle.variable(step::launch_record_variable) != step::no_srun_record;
  // Before anything can fail: srun is to hear of a refusal, too.
  if (session.has_srun) session.srun = step::read_srun_link(handle.environment());
  session.start = std::chrono::steady_clock::now();
  if (auto usable = session.request.settings_are_usable(); !usable) {
    return Error{usable.error().code, concat({"on node ", own_host_name(), " ", usable.error().message})};
  }
  auto planned = plan_node(session, *spec, handle);
  if (planned && !session.has_srun && spec->verbose) {
    planned->notes.push_back(placement_line(*spec, planned->step.placement, planned->step.rendezvous.address));
  }
  return planned ? PlanOutcome(std::move(*planned)) : PlanOutcome(planned.error());
}

/// Other nodes would wait for these tasks, which would not know their ranks. The step is ours: srun sent a record.
Error switched_off(StepdSession& session, const Handle& handle) {
  session.srun = step::read_srun_link(handle.environment());
  return {Errc::unavailable,
          concat({"on node ", own_host_name(), " aml-dist is switched off (disabled), but not where ",
                  "the step was started: its tasks do not start; give all nodes the same config="})};
}

}  // namespace

void plan_step(StepdSession& session, const Handle& handle) {
  session.request.take_variable(handle.variable(option_variable));
  const bool is_off = session.request.policy.disabled;
  if (is_off && !handle.variable(step::launch_record_variable)) return;
  if (!is_off && session.request.is_idle() && !has_kind_only_in_srun(session.request, handle)) return;
  const auto step_id = handle.number(S_JOB_STEPID, "S_JOB_STEPID");
  const bool starts_ranks = !step_id || *step_id <= SLURM_MAX_NORMAL_STEP_ID;
  if (!starts_ranks) return;  // batch, interactive and extern steps
  session.task_refused = SharedAtomic<bool>::make();
  session.outcome = is_off ? PlanOutcome(switched_off(session, handle)) : plan(session, handle);
}

}  // namespace amldist::spank
