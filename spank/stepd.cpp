// slurmstepd, and the task that it forks.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <span>

#include "core/text.hpp"
#include "frameworks/advice.hpp"
#include "frameworks/tensorflow_roles.hpp"
#include "os/own_network.hpp"
#include "placement/identity.hpp"
#include "recorder/last_call.hpp"
#include "recorder/record_folder.hpp"
#include "rendezvous/master_address.hpp"
#include "site/rdma_policy.hpp"
#include "spank/contexts.hpp"
#include "spank/guardian.hpp"
#include "spank/report.hpp"
#include "spank/slurm_api.hpp"
#include "spank/step_reader.hpp"
#include "step_messages/launch_record.hpp"
#include "step_messages/server_release.hpp"

namespace amldist::spank {
namespace {

using text::concat;

/// The plan, before anything of this node's is asked; and the ranks of its tasks, as far as they are known here.
struct Draft {
  StepPlan plan;
  std::vector<std::uint32_t> ranks;
  NodeFeatures features;
};

Result<Draft> draft_plan(Session& session, const Spec& spec, const NodeItems& items,
                         const EnvironmentReader& environment) {
  auto step = read_step(spec, session.policy, items, environment, session.srun);
  if (!step) return step.error();
  if (auto counts = check_counts(spec, step->placement.map); !counts) return counts.error();
  const RendezvousFacts facts{step->address, step->ports, read_job_name(environment, step->job_id), items.step_id};
  auto rendezvous = settle(spec, facts, environment, session.notes);
  if (!rendezvous) return rendezvous.error();
  return Draft{{spec, std::move(step->placement), std::move(*rendezvous),
                concat({std::to_string(items.job_id), ".", std::to_string(items.step_id)})},
               std::move(step->ranks),
               std::move(step->features)};
}

/// Whether MASTER_ADDR means this node, rank 0's: an address of the user's may name a server that runs elsewhere.
bool master_is_ours(const Rendezvous& meet, const std::string& host) {
  if (meet.address_origin == Origin::computed || meet.address == host) return true;
  if (meet.address.starts_with(concat({host, "."}))) return true;
  const auto literal = Ipv4::parse(meet.address);
  return literal && is_own_address(*literal);
}

/// Ports that these ranks will listen on: rank 0's, and for TensorFlow one for each task.
std::vector<std::uint16_t> ports_of(const StepPlan& plan, std::span<const std::uint32_t> ranks,
                                    const std::string& host) {
  std::vector<std::uint16_t> ports;
  for (const std::uint32_t rank : ranks) {
    const bool listens = rank == 0 ? master_is_ours(plan.rendezvous, host) : plan.spec.kind == Kind::tensorflow;
    if (!listens) continue;
    ports.push_back(static_cast<std::uint16_t>(plan.rendezvous.port + plan.placement.map.local_rank_of(rank)));
  }
  return ports;
}

Result<void> claim_ports(Session& session, const StepPlan& plan, std::span<const std::uint32_t> ranks,
                         const Handle& handle) {
  const std::string host = plan.placement.host_of(ranks.front());
  const std::vector<std::uint16_t> ports = ports_of(plan, ranks, host);
  if (ports.empty()) return {};
  const auto user = handle.number(S_JOB_UID, "S_JOB_UID");
  if (!user) return user.error();
  if (auto may = may_listen(*user, *std::ranges::min_element(ports), host); !may) return may;
  for (const std::uint16_t port : ports) {
    auto claim = PortClaim::take(port, host);
    if (!claim) return claim.error();
    session.claims.push_back(std::move(*claim));
  }
  return {};
}

/// Tells srun the address of rank 0's node, or that it has none: then the others need not wait for it.
Result<void> announce_address(const Session& session, const StepPlan& plan, const Result<Ipv4>& address,
                              const Error& unheard) {
  if (!session.srun) return address ? Result<void>(unheard) : address.error();
  const std::uint64_t token = session.srun->channel.token;
  const bool told = tell(*session.srun, address ? to_datagram(Subject::address, plan.rendezvous.address, token)
                                                : to_datagram(MessageType::no_address, token));
  if (!address) return address.error();
  return told ? Result<void>() : unheard;
}

/// Puts an address in the place of "@IFACE", where the site names an interface: rank 0's node finds it and tells srun,
/// from which the others learn it.
Result<void> learn_address(const Session& session, StepPlan& plan, std::span<const std::uint32_t> ranks) {
  const auto interface = interface_to_ask(plan.rendezvous.address);
  if (!interface) return {};
  const Error unheard{
      Errc::unavailable,
      concat({"rank 0's node ", plan.placement.master_host(), " and this one do not agree over srun on ",
              "the address of interface ", *interface, ": use master_addr=name, or try again"})};
  if (!ranks.empty() && ranks.front() == 0) {
    const auto address = address_of_interface(*interface, session.policy.network);
    if (address) plan.rendezvous.address = address->to_string();
    if (plan.placement.map.size() == ranks.size()) return address ? Result<void>() : address.error();
    return announce_address(session, plan, address, unheard);
  }
  constexpr int attempts = 100;  // ten seconds: nodes do not come to a step at the same moment
  auto address =
      session.srun ? ask(*session.srun, MessageType::which_address, Subject::address, attempts) : std::nullopt;
  if (address && address->empty()) return Error{Errc::unavailable, ""};  // the user reads it from rank 0's node
  if (!address || !Ipv4::parse(*address)) return unheard;
  plan.rendezvous.address = std::move(*address);
  return {};
}

/// The address of some other node of the step; nullopt when Slurm has none.
std::optional<Ipv4> address_of_a_peer(const Placement& placement, std::uint32_t node) {
  const std::uint32_t peer = placement.map.node_at(placement.map.node_rank_of(node) == 0 ? 1 : 0);
  const auto address = slurm_node_address(placement.hosts.at(peer));
  return address ? std::optional(*address) : std::nullopt;
}

/// Minds Debian's 127.0.1.1: a name that is loopback on its own node must not be the master's address, and Gloo must
/// not be left to look its own name up.
Result<void> mind_own_name(StepPlan& plan, std::uint32_t node, const EnvironmentReader& environment,
                           std::vector<std::string>& notes) {
  if (plan.placement.map.nodes() == 1) return {};
  const auto is_loopback = [](std::string_view name) {
    const auto address = hosts_file_address(name);
    return address && address->is_loopback();
  };
  const Rendezvous& meet = plan.rendezvous;
  const bool has_master = plan.placement.map.node_of(0) == node;
  if (has_master && meet.address_origin == Origin::computed && !Ipv4::parse(meet.address) &&
      is_loopback(meet.address)) {
    return Error{Errc::unavailable,
                 concat({"MASTER_ADDR=", meet.address, " is ", hosts_file_address(meet.address)->to_string(),
                         " in /etc/hosts of ", plan.placement.hosts.at(node),
                         " itself, so its peers would not find it: use master_addr=ip, or correct that file"})};
  }
  NetworkView network;
  network.address_of_node = slurm_node_address;  // no name server: slurmstepd must not wait for one
  if (auto reached = refuse_loopback(meet, plan.placement, network); has_master && !reached) return reached;
  if (!is_loopback(own_host_name())) return {};
  const auto peer = address_of_a_peer(plan.placement, node);
  if (!peer || peer->is_loopback()) return {};
  if (auto interface = interface_towards(*peer)) plan.gloo_interface = std::move(*interface);
  const auto chosen = environment("GLOO_SOCKET_IFNAME");
  if (has_master && chosen && *chosen != plan.gloo_interface) {
    notes.push_back(concat({"GLOO_SOCKET_IFNAME=", *chosen, " is yours and stays; the interface to the other nodes is ",
                            plan.gloo_interface}));
  }
  return {};
}

/// srun may have opened its channel before it knew the partition, and with it whether the step concerns us.
Result<void> forget_srun(const Handle& handle) {
  if (!handle.variable(report_variable)) return handle.environment_was_read();
  EnvironmentPatch patch;
  patch.unset(report_variable);
  return handle.apply(patch);
}

/// The fabric, where somebody wants it verified.
void plan_verification(Session& session, const StepPlan& plan, const NodeFeatures& features, std::uint32_t node,
                       const Handle& handle) {
  const std::string partition = handle.variable("SLURM_JOB_PARTITION").value_or("");
  const RdmaChoice choice = choose_rdma(session.policy, plan.spec, partition, features);
  if (choice.policy == RdmaPolicy::off) return;
  const std::string sku = rdma_sku(session.policy, partition, features, node);
  session.fabric = plan_fabric(session.policy, choice.policy, sku, handle);
  session.fabric->host = plan.placement.hosts.at(node);
  session.fabric->node = node;
  session.fabric->nodes = plan.placement.map.nodes();
}

Result<void> plan_and_claim(Session& session, const Handle& handle) {
  const auto spec = session.spec_in_partition(handle.variable("SLURM_JOB_PARTITION").value_or(""));
  if (!spec) return spec.error();
  if (spec->kind == Kind::none) return forget_srun(handle);
  session.refused_by_srun = handle.variable(launch_record_variable) == refused_record;
  if (session.refused_by_srun) return {};
  session.srun = read_srun_link(handle.environment());  // first: srun is to hear of a refusal too
  session.start = std::chrono::steady_clock::now();
  const auto items = read_items(handle);
  if (!items) return items.error();
  auto draft = draft_plan(session, *spec, *items, handle.environment());
  if (auto whole = handle.environment_was_read(); !whole) return whole.error();
  if (!draft) return draft.error();
  auto& [plan, ranks, features] = *draft;
  session.whole_step = plan.placement.map.size() == items->tasks;
  if (auto learned = learn_address(session, plan, ranks); !learned) return learned;
  // Of a heterogeneous step that could not be asked for at srun only the tasks know their ranks; what follows is then
  // left to the program.
  if (!ranks.empty()) {
    const std::uint32_t own = plan.placement.map.node_of(ranks.front());
    if (auto minded = mind_own_name(plan, own, handle.environment(), session.notes); !minded) return minded;
    if (auto claimed = claim_ports(session, plan, ranks, handle); !claimed) return claimed;
  }
  const std::uint32_t node = ranks.empty() ? items->node : plan.placement.map.node_of(ranks.front());
  plan_verification(session, plan, features, node, handle);
  session.plan = std::move(plan);
  return {};
}

/// The task's rank over the whole step. SPANK's own number counts within a component, SLURM_PROCID over all of them.
Result<std::uint32_t> rank_of_task(const Session& session, const Handle& handle) {
  const auto in_component = handle.number(S_TASK_GLOBAL_ID, "S_TASK_GLOBAL_ID");
  if (!in_component) return in_component.error();
  const TaskMap& map = session.plan->placement.map;
  const auto procid = text::to_number(handle.variable("SLURM_PROCID").value_or(""), most_tasks);
  const auto rank = session.whole_step ? *in_component : static_cast<std::uint32_t>(procid.value_or(map.size()));
  const bool agrees = rank < map.size() && (!procid || *procid == rank);
  if (!agrees) return Error{Errc::mismatch, "Slurm started a task that the step's task map does not have"};
  const auto host = handle.variable("SLURMD_NODENAME");
  if (host && *host != session.plan->placement.host_of(rank)) {
    return Error{Errc::mismatch,
                 concat({"the step's task map has rank ", std::to_string(rank), " on ",
                         session.plan->placement.host_of(rank), " but it runs on ", text::quote(*host)})};
  }
  return rank;
}

Result<void> write_environment(const Session& session, const Handle& handle, std::uint32_t rank) {
  std::optional<StepPlan> with_fabric;
  if (session.fabric) {
    auto settings = verified_settings(*session.fabric, session.srun, handle);
    if (!settings) return settings.error();
    with_fabric = session.plan;
    with_fabric->fabric_settings = std::move(*settings);
  }
  auto patch = task_environment(with_fabric ? *with_fabric : *session.plan, rank, handle.environment());
  if (auto whole = handle.environment_was_read(); !whole) return whole.error();
  if (!patch) return patch.error();
  patch->unset(launch_record_variable);
  patch->unset(report_variable);
  return handle.apply(*patch);
}

/// What rank 0 can see of things that will surprise.
void advise(const StepPlan& plan, const EnvironmentReader& environment) {
  const Identity identity = identity_of(plan.placement.map, 0);
  if (const auto advice = gpu_advice(plan.spec, identity, environment)) tell_step(*advice);
  if (const auto advice = mpi_advice(plan.spec, identity, environment)) tell_step(*advice);
}

TensorflowRoles roles_of(const StepPlan& plan) { return {plan.spec.counts, plan.placement.map.size()}; }

/// Whether the step has servers, which do not return, and somebody who does.
bool has_servers(const StepPlan& plan) {
  if (plan.spec.kind != Kind::tensorflow || plan.spec.counts.parameter_servers.value_or(0) == 0) return false;
  const TensorflowRoles roles = roles_of(plan);
  return roles.count(TensorflowRole::chief) + roles.count(TensorflowRole::worker) > 0;
}

/// Tasks that somebody else has to end: servers; and beside a chief the workers, which in TensorFlow 2 serve it and
/// never return.
bool needs_guardian(const StepPlan& plan, std::uint32_t rank) {
  if (!has_servers(plan)) return false;
  const TensorflowRoles roles = roles_of(plan);
  const TensorflowRole role = roles.role_of(rank);
  const bool has_chief = roles.count(TensorflowRole::chief) > 0;
  return role == TensorflowRole::server || (role == TensorflowRole::worker && has_chief);
}

/// From here on the program is a child of the process that Slurm knows.
Result<void> put_under_guard(const Session& session, const Handle& handle, std::uint32_t rank) {
  if (!leave_guardian(*session.srun)) {
    tell_step(concat({"rank ", std::to_string(rank), " will not end by itself when the step's work is done, since no ",
                      "process could be started beside it: raise ulimit -u, or end the step by hand"}));
    return {};
  }
  EnvironmentPatch patch;
  patch.set("SLURM_TASK_PID", static_cast<std::uint64_t>(::getpid()));
  return handle.apply(patch);
}

Result<void> equip_task(const Session& session, const Handle& handle) {
  if (session.failure) return *session.failure;
  if (!session.plan) return {};
  const auto rank = rank_of_task(session, handle);
  if (!rank) return rank.error();
  if (*rank == 0) {
    for (const std::string& note : session.notes) tell_step(note);
    advise(*session.plan, handle.environment());
  }
  if (auto written = write_environment(session, handle, *rank); !written) return written;
  if (session.srun && needs_guardian(*session.plan, *rank)) return put_under_guard(session, handle, *rank);
  return {};
}

/// The rank of a task that has ended, from slurmstepd itself. In a heterogeneous step only SLURM_PROCID counts over all
/// components; Slurm sets it for the ended task (for TaskEpilog) before it calls us.
std::optional<std::uint32_t> rank_of_ended_task(const Session& session, const Handle& handle) {
  const std::uint32_t size = session.plan->placement.map.size();
  if (session.whole_step) {
    const auto rank = handle.number(S_TASK_GLOBAL_ID, "S_TASK_GLOBAL_ID");
    return rank && *rank < size ? std::optional(*rank) : std::nullopt;
  }
  const auto procid = text::to_number(handle.variable("SLURM_PROCID").value_or(""), size - 1);
  return procid ? std::optional(static_cast<std::uint32_t>(*procid)) : std::nullopt;
}

/// What a dead task's flight recorder says it did last. Of a heterogeneous step the recorders are named otherwise.
std::string last_call(const Session& session, const Handle& handle, std::uint32_t rank) {
  const auto user = handle.number(S_JOB_UID, "S_JOB_UID");
  const auto job = handle.number(S_JOB_ID, "S_JOB_ID");
  const auto step = handle.number(S_JOB_STEPID, "S_JOB_STEPID");
  if (!session.whole_step || !user || !job || !step) return {};
  return collective::last_call_of(collective::trace_roots({}, *user), *user,
                                  concat({std::to_string(*job), ".", std::to_string(*step)}), rank)
      .value_or("");
}

/// What srun is to hear when a task has ended: that it failed; or that this node refused the step, and that the deaths
/// which follow are no failures.
std::optional<FailureReport> report_of_end(const Session& session, const Handle& handle) {
  const auto status = handle.number(S_TASK_EXIT_STATUS, "S_TASK_EXIT_STATUS");
  if (!status || !is_failure(*status)) return std::nullopt;
  FailureReport report;
  report.wait_status = *status;
  report.elapsed_ms = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - session.start).count());
  if (session.task_refused.is_set()) {
    report.kind = FailureReport::Kind::refused;
    report.host = handle.variable("SLURMD_NODENAME").value_or("unknown");
    return report;
  }
  const auto rank = session.plan ? rank_of_ended_task(session, handle) : std::nullopt;
  if (!rank) return std::nullopt;
  report.rank = *rank;
  report.local_rank = session.plan->placement.map.local_rank_of(*rank);
  report.host = session.plan->placement.host_of(*rank);
  report.last_call = last_call(session, handle, *rank);
  return report;
}

/// Tells srun, in a parameter-server step, that a chief or worker has ended. A srun that does not answer is not waited
/// for again, but told all the same: if it was only stopped, the servers' end depends on it.
void report_worker(Session& session, const Handle& handle) {
  if (!session.plan || !has_servers(*session.plan)) return;
  const auto rank = rank_of_ended_task(session, handle);
  const auto status = handle.number(S_TASK_EXIT_STATUS, "S_TASK_EXIT_STATUS");
  if (!rank || !status) return;
  const TensorflowRoles roles = roles_of(*session.plan);
  const TensorflowRole role = roles.role_of(*rank);
  if (role != TensorflowRole::chief && role != TensorflowRole::worker) return;
  const WorkerEnd end{role == TensorflowRole::chief, *rank, *status, roles.count(TensorflowRole::chief),
                      roles.count(TensorflowRole::worker)};
  const std::string datagram = end.to_datagram(session.srun->channel.token);
  if (session.unheard) send_unheard(*session.srun, datagram);
  else session.unheard = !tell(*session.srun, datagram);
}

/// Without memory srun hears nothing; ending a refused step must not depend on it.
void tell_srun(Session& session, const Handle& handle) noexcept {
  if (!session.srun) return;
  try {
    if (const auto report = report_of_end(session, handle)) send_report(*session.srun, *report);
    report_worker(session, handle);
  } catch (const std::exception&) {  // out of memory
  }
}

}  // namespace

void plan_step(Session& session, const Handle& handle) {
  if (session.is_idle()) return;
  const auto step_id = handle.number(S_JOB_STEPID, "S_JOB_STEPID");
  const bool starts_ranks = !step_id || *step_id <= SLURM_MAX_NORMAL_STEP_ID;
  if (!starts_ranks) return;  // batch, interactive and extern steps
  session.task_refused = SharedFlag::make();
  if (auto planned = plan_and_claim(session, handle); !planned) session.failure = planned.error();
}

Result<void> start_task(const Session& session, const Handle& handle) {
  // The user knows why, and Slurm would add two lines for each task.
  if (session.refused_by_srun) ::_exit(EXIT_FAILURE);
  auto equipped = equip_task(session, handle);
  if (equipped) return equipped;
  const bool first = session.task_refused.raise();
  const std::string& why = equipped.error().message;  // empty: the user has read it
  if (first && !why.empty()) tell_step(why);          // one line per node, not one per task
  return equipped;
}

void finish_task(Session& session, const Handle& handle) {
  tell_srun(session, handle);
  if (!session.task_refused.is_set() || session.step_ended) return;
  session.step_ended = true;
  const auto job_id = handle.number(S_JOB_ID, "S_JOB_ID");
  const auto step_id = handle.number(S_JOB_STEPID, "S_JOB_STEPID");
  if (!job_id || !step_id) return;
  // The sentence that says why is still on its way to srun, which hears no more once its step is being ended.
  constexpr timespec time_to_be_heard = {0, 500'000'000};
  static_cast<void>(::nanosleep(&time_to_be_heard, nullptr));
  // Tasks on this node never started; without this the others would wait for them to the end of their time limit.
  static_cast<void>(end_step(*job_id, *step_id));
}

}  // namespace amldist::spank
