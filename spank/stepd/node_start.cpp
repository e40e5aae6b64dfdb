#include "spank/stepd/node_start.hpp"

#include <algorithm>
#include <chrono>

#include "base/net/own_network.hpp"
#include "base/net/socket.hpp"
#include "base/text/text.hpp"
#include "launch/frameworks/launcher_daemons.hpp"
#include "launch/frameworks/verbose.hpp"
#include "launch/rendezvous/master_address.hpp"
#include "spank/slurm/slurm_api.hpp"
#include "spank/stepd/parameter_servers.hpp"
#include "spank/stepd/task_trace.hpp"
#include "step/messages/end_record.hpp"
#include "step/messages/launch_record.hpp"
#include "step/messages/step_secret.hpp"

namespace amldist::spank {
namespace {

using text::concat;

// ---- whether the step gets a kind ----

/// Whether srun, whose settings are whole, gave the step a kind of which this node's settings may not tell.
bool has_kind_only_in_srun(const StepRequest& request, const Handle& handle) {
  return !request.settings_are_usable() && !request.option && handle.variable(step::launch_record_variable).has_value();
}

/// Whether srun gave this step a kind, and not one around it, whose record an older srun hands on.
bool has_record_of_this_step(const Handle& handle) {
  const auto record = step::LaunchRecord::parse(handle.variable(step::launch_record_variable).value_or(""));
  const auto job_id = handle.number(S_JOB_ID, "S_JOB_ID");
  const auto step_id = handle.number(S_JOB_STEPID, "S_JOB_STEPID");
  return record && job_id && step_id && record->job_id == *job_id && record->step_id == *step_id;
}

/// False also for batch, interactive and extern steps.
bool may_get_kind(const StepRequest& request, const Handle& handle) {
  if (request.policy.disabled && !handle.variable(step::launch_record_variable)) return false;
  if (!request.policy.disabled && request.is_idle() && !has_kind_only_in_srun(request, handle) &&
      !has_record_of_this_step(handle))
    return false;
  const auto step_id = handle.number(S_JOB_STEPID, "S_JOB_STEPID");
  return !step_id || *step_id <= SLURM_MAX_NORMAL_STEP_ID;
}

/// Removes from the job's environment what srun left there for us: TaskEpilog would get it. In a step that does not
/// concern us its record too, which the tasks would get: srun may have made it before it knew the partition.
Result<void> remove_variables_of_srun(const Handle& handle, bool with_record) {
  EnvironmentPatch patch;
  for (const char* const name : {step::report_variable, sent_option_variable, job_option_variable}) {
    if (handle.variable(name)) patch.unset(name);
  }
  if (with_record && handle.variable(step::launch_record_variable)) patch.unset(step::launch_record_variable);
  step::give_secret({}, handle.environment(), patch);
  if (auto status = handle.environment_was_read(); !status) return status;
  return handle.apply(patch);
}

/// The step is ours: srun sent a record, of a kind that only its own settings can have given.
Error lacks_default() {
  return {Errc::unavailable,
          concat({"on node ", own_host_name(), " the site's settings give the step no kind, but where the step was ",
                  "started they do (default.PARTITION): its tasks do not start; give all nodes the same config="})};
}

/// The outcome for a step that gets no plan; nullopt for one that gets a kind.
std::optional<NodeStart::Outcome> outcome_without_plan(const StepRequest& request, const Result<launch::Spec>& spec,
                                                       const Handle& handle) {
  if (!spec) return spec.error();
  const bool has_no_kind = spec->kind == launch::Kind::none && !has_kind_only_in_srun(request, handle);
  if (has_no_kind && !request.option && has_record_of_this_step(handle)) return lacks_default();
  if (has_no_kind || launch::is_launcher_daemon(handle.program())) return NotConcerned{};
  if (handle.variable(step::launch_record_variable) == step::refused_record) return RefusedBySrun{};
  return std::nullopt;
}

// ---- facts ----

/// The address of another node of the step; nullopt when Slurm has none.
std::optional<IpAddress> address_of_a_peer(const launch::Placement& placement, std::uint32_t node) {
  const std::uint32_t peer = placement.map.node_at(placement.map.node_rank_of(node) == 0 ? 1 : 0);
  const auto address = slurm_node_address(placement.hosts.at(peer));
  return address ? std::optional(*address) : std::nullopt;
}

/// What decides about MASTER_ADDR and Gloo. slurmstepd must not wait for a name server that does not answer.
void read_network(NodeFacts& facts) {
  facts.target_of = launch::NameTargets([own = facts.own_addresses, user = facts.user](const std::string& name) {
    constexpr std::chrono::milliseconds patience{1500};
    return launch::look_up_target(name, own, user, patience);
  });
  const launch::Placement& placement = facts.step.placement;
  if (facts.step.ranks.empty() || placement.map.nodes() == 1) return;
  facts.own_name = own_host_name();
  facts.peer = address_of_a_peer(placement, placement.map.node_of(facts.step.ranks.front()));
  if (!facts.peer) return;
  if (auto interface = interface_towards(*facts.peer)) facts.interface_to_peer = std::move(*interface);
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

Result<void> check_settings(const StepRequest& request) {
  const auto usable = request.settings_are_usable();
  if (usable) return {};
  return Error{usable.error().code, concat({"on node ", own_host_name(), " ", usable.error().message})};
}

/// What the step is on this node, from SPANK, srun's record or Slurm.
Result<NodeFacts> read_facts(const StepRequest& request, const launch::Spec& spec,
                             const std::optional<step::SrunLink>& srun, bool has_srun, const Handle& handle) {
  if (auto status = check_settings(request); !status) return status.error();
  if (auto status = refuse_container_without_environment(handle); !status) return status.error();
  auto items = read_items(handle);
  if (!items) return items.error();
  const auto user = handle.number(S_JOB_UID, "S_JOB_UID");
  const auto group = handle.number(S_JOB_GID, "S_JOB_GID");
  if (!user || !group) return user ? group.error() : user.error();
  auto step = read_step(spec, request.policy, *items, handle.environment(), srun);
  if (!step) return step.error();
  NodeFacts facts{.items = std::move(*items), .user = {*user, *group}, .step = std::move(*step), .has_srun = has_srun};
  facts.own_addresses = own_addresses();
  facts.trace_libraries = find_trace_libraries(request.policy.trace_libraries);
  read_network(facts);
  const launch::Placement& placement = facts.step.placement;
  if (!has_srun) {
    facts.address_of_stand_in = slurm_node_address(placement.host_of(rank_of_stand_in(spec, placement.map.size())));
  }
  return facts;
}

// ---- the plan applied ----

std::vector<std::string> record_files(const Handle& handle) {
  auto file = handle.variable(step::end_record_variable);
  return file && !file->empty() ? std::vector{std::move(*file)} : std::vector<std::string>();
}

/// Opens the stand-in on this node. An error refuses the step: the other nodes wait for it before they start their
/// tasks.
Result<void> open_stand_in(NodeStart& start, const NodePlan& plan, const NodeFacts& facts, const Handle& handle) {
  const step::ReportChannel& channel = plan.stand_in->channel;
  const launch::Placement& placement = plan.step.placement;
  const auto may = launch::may_listen(facts.user.user, channel.port, plan.host);
  auto server = may ? StepServer::open({channel.port, channel.port}, channel.token) : may.error();
  if (!server) {
    return Error{
        server.error().code,
        concat({"no srun waits for this step, and ", plan.host, " cannot stand in for it (", server.error().message,
                "): its tasks do not start: choose another master_port=, or start it without --async"})};
  }
  start.stand_in = std::move(*server);
  start.served = {.job_id = facts.items.job_id,
                  .step_id = facts.items.step_id,
                  .tasks = placement.map.size(),
                  .nodes = placement.map.nodes(),
                  .hosts = {{placement.hosts, facts.items.job_id}},
                  .stop = plan.step.spec.stop,
                  .record_files = record_files(handle),
                  .rights = facts.user,
                  .folder = handle.variable("PWD").value_or("/")};
  return {};
}

/// Tells srun that this node's tasks will have their environment; where the ranks are not known yet, the tasks do. A
/// stand-in answers only later.
void report_own_node(NodeStart& start, const NodePlan& plan) {
  if (!start.srun) return;
  start.gate = StartGate::make();
  if (plan.ranks.empty()) return;
  constexpr std::chrono::milliseconds patience{1000};
  const std::string report = to_datagram(step::Subject::here, plan.host, start.srun->channel.token);
  if (!start.has_srun) return send_without_reply(*start.srun, report);
  const auto answer = report_node(*start.srun, plan.host, patience, false);
  if (answer == step::MessageType::start) start.gate->state.store(StartGate::State::open);
}

/// Other nodes would wait for these tasks, which would not know their ranks. The step is ours: srun sent a record.
Error switched_off() {
  return {Errc::unavailable,
          concat({"on node ", own_host_name(), " aml-dist is switched off (disabled), but not where ",
                  "the step was started: its tasks do not start; give all nodes the same config="})};
}

/// Tells srun the address of rank 0's node, or that there is none, so that the other nodes stop waiting.
Result<std::string> announce_address(const std::optional<step::SrunLink>& srun, const Result<Ipv4>& address,
                                     const Error& unheard) {
  const bool told =
      srun && tell(*srun, address ? to_datagram(step::Subject::address, address->to_string(), srun->channel.token)
                                  : to_datagram(step::MessageType::no_address, srun->channel.token));
  if (!address) return address.error();
  return told ? Result<std::string>(address->to_string()) : unheard;
}

/// MASTER_ADDR. Where the site names an interface ("@IFACE"), rank 0's node looks it up and tells srun, which tells the
/// other nodes.
Result<std::string> find_address(const NodePlan& plan, const launch::SitePolicy& site,
                                 const std::optional<step::SrunLink>& srun) {
  const auto interface = launch::interface_to_ask(plan.step.rendezvous.address);
  if (!interface) return plan.step.rendezvous.address;
  const Error unheard{Errc::unavailable, concat({"rank 0's node ", plan.step.placement.master_host(),
                                                 " could not send the other nodes, over srun, the address of ",
                                                 "interface ", *interface, ": use master_addr=name, or try again"})};
  if (!plan.ranks.empty() && plan.ranks.front() == 0) {
    const auto address = address_of_interface(*interface, site.network);
    if (plan.step.placement.map.size() != plan.ranks.size()) return announce_address(srun, address, unheard);
    return address ? Result<std::string>(address->to_string()) : address.error();
  }
  constexpr int attempts = 100;  // ten seconds: nodes do not come to a step at the same moment
  auto address = srun ? ask(*srun, step::MessageType::which_address, step::Subject::address, attempts) : std::nullopt;
  if (address && address->empty()) return Error{Errc::unavailable, ""};  // the user reads it from rank 0's node
  return address && Ipv4::parse(*address) ? Result<std::string>(std::move(*address)) : unheard;
}

Result<std::vector<launch::PortClaim>> claim_ports(const NodePlan& plan, uid_t user) {
  std::vector<launch::PortClaim> claims;
  if (plan.ports.empty()) return claims;
  if (auto status = launch::may_listen(user, std::ranges::min(plan.ports), plan.host); !status) return status.error();
  launch::remove_stale_leases();
  for (const std::uint16_t port : plan.ports) {
    auto claim = launch::PortClaim::take(port, plan.host);
    if (!claim) return claim.error();
    claims.push_back(std::move(*claim));
  }
  return claims;
}

Result<NodeResources> gather_resources(const NodePlan& plan, const launch::SitePolicy& site, uid_t user,
                                       const Handle& handle) {
  auto claims = claim_ports(plan, user);
  if (!claims) return claims.error();
  NodeResources out{.claims = std::move(*claims), .secret = step::read_secret(handle.environment())};
  if (plan.fabric) out.fabric = plan_fabric(site, *plan.fabric, {plan.node, plan.step.placement}, handle);
  if (auto status = handle.environment_was_read(); !status) return status.error();
  return out;
}

NodeStart read_plan_apply(const StepRequest& request, const Handle& handle) {
  NodeStart start;
  start.task_refused = SharedAtomic<bool>::make();
  start.begin = std::chrono::steady_clock::now();
  if (request.policy.disabled) {
    start.srun = step::read_srun_link(handle.environment());
    start.outcome = switched_off();
    return start;
  }
  const auto spec = request.spec_in_partition(handle.variable("SLURM_JOB_PARTITION").value_or(""));
  if (auto outcome = outcome_without_plan(request, spec, handle)) {
    if (std::holds_alternative<Error>(*outcome)) start.srun = step::read_srun_link(handle.environment());
    start.outcome = std::move(*outcome);
    return start;
  }
  start.has_srun = handle.variable(step::launch_record_variable) != step::no_srun_record;
  if (start.has_srun) start.srun = step::read_srun_link(handle.environment());  // it is to hear of a refusal, too
  const auto facts = read_facts(request, *spec, start.srun, start.has_srun, handle);
  auto plan = facts ? plan_node(*facts, *spec, request.policy, handle.environment()) : facts.error();
  if (auto whole = handle.environment_was_read(); !whole) plan = whole.error();
  if (plan && plan->stand_in) start.srun = plan->stand_in;
  if (plan && plan->stands_in) {
    if (auto opened = open_stand_in(start, *plan, *facts, handle); !opened) plan = opened.error();
  }
  if (plan) report_own_node(start, *plan);
  auto address = plan ? find_address(*plan, request.policy, start.srun) : plan.error();
  auto resources = address ? gather_resources(*plan, request.policy, facts->user.user, handle) : address.error();
  if (!resources) {
    start.outcome = std::move(resources).error();
    return start;
  }
  start.resources = std::move(*resources);
  const auto tasks = handle.number(S_JOB_LOCAL_TASK_COUNT, "S_JOB_LOCAL_TASK_COUNT");
  if (tasks) start.tasks = AllTaskFacts::make(*tasks);
  const bool judges_places =
      spec->launch != launch::Launch::per_node && !plan->ranks.empty() && plan->ranks.front() == 0;
  if (judges_places) start.tasks.devices = read_devices();
  plan->step.rendezvous.address = std::move(*address);
  if (!start.has_srun && spec->verbose) {
    plan->notes.push_back(placement_line(*spec, plan->step.placement, plan->step.rendezvous.address));
  }
  start.outcome = std::move(*plan);
  return start;
}

}  // namespace

NodeStart start_node(const StepRequest& request, const Handle& handle) {
  if (!may_get_kind(request, handle)) return {};
  NodeStart start = read_plan_apply(request, handle);
  const bool concerns_us = !std::holds_alternative<NotConcerned>(start.outcome);
  if (auto status = remove_variables_of_srun(handle, !concerns_us); !status) start.outcome = status.error();
  return start;
}

}  // namespace amldist::spank
