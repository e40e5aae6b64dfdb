#include "spank/stepd/node_plan.hpp"

#include <algorithm>
#include <limits>

#include "base/text/text.hpp"
#include "launch/rendezvous/master_address.hpp"
#include "launch/rendezvous/ray_port.hpp"
#include "launch/site/rdma_policy.hpp"
#include "spank/stepd/parameter_servers.hpp"

namespace amldist::spank {
namespace {

using text::concat;

using Where = launch::NameTarget::Where;

/// On rank 0's node: what is wrong with a host that the user set as the master; empty: nothing. A server elsewhere may
/// be meant.
std::string doubt_of(const std::string& master, const NodeFacts& facts) {
  const launch::Placement& placement = facts.step.placement;
  const std::string host = placement.master_host();
  if (!facts.target_of || facts.step.ranks.empty() || facts.step.ranks.front() != 0 || master == host) return {};
  const launch::NameTarget target = facts.target_of(master);
  const std::string rank_zero = concat({"rank 0 is on ", host});
  if (target.where == Where::nowhere) return concat({"nobody resolves that name on ", host, ", where rank 0 is"});
  if (target.where != Where::elsewhere) return {};
  return target.address == master ? concat({rank_zero, ", which does not have that address"})
                                  : concat({"it is ", target.address, ", and ", rank_zero});
}

Result<launch::StepPlan> plan_step(const NodeFacts& facts, const launch::Spec& spec,
                                   const EnvironmentReader& environment, std::vector<std::string>& notes) {
  const StepReading& step = facts.step;
  if (auto status = check_counts(spec, step.placement.map); !status) return status.error();
  auto rendezvous =
      settle(spec,
             {step.address, step.ports, launch::read_job_name(environment, step.job_id), facts.items.step_id,
              step.peers, [&facts](const std::string& master) { return doubt_of(master, facts); }},
             environment, notes);
  if (!rendezvous) return rendezvous.error();
  return launch::StepPlan{spec, step.placement, std::move(*rendezvous),
                          concat({std::to_string(facts.items.job_id), ".", std::to_string(facts.items.step_id)})};
}

/// Whether MASTER_ADDR is an address of this node, rank 0's. One that the user set may belong to a server elsewhere.
bool master_is_ours(const launch::Rendezvous& meet, const NodePlan& plan, const NodeFacts& facts) {
  if (meet.address_origin == launch::Origin::computed || meet.address == plan.host) return true;
  if (meet.address.starts_with(concat({plan.host, "."}))) return true;
  const Where where = facts.target_of ? facts.target_of(meet.address).where : Where::unknown;
  return where == Where::here || where == Where::loopback;
}

/// Ports that this node's ranks will listen on: rank 0's, for TensorFlow one for each task, for Ray a block on each
/// node.
std::vector<std::uint16_t> ports_of(const NodePlan& plan, const NodeFacts& facts) {
  const launch::Rendezvous& meet = plan.step.rendezvous;
  std::vector<std::uint16_t> ports;
  if (plan.step.spec.kind == launch::Kind::ray) {
    for (int i = 0; i < launch::ray_ports; ++i) ports.push_back(static_cast<std::uint16_t>(meet.port + i));
    return ports;
  }
  for (const std::uint32_t rank : plan.ranks) {
    const bool listens =
        rank == 0 ? master_is_ours(meet, plan, facts) : plan.step.spec.kind == launch::Kind::tensorflow;
    if (!listens) continue;
    ports.push_back(static_cast<std::uint16_t>(meet.port + plan.step.placement.map.local_rank_of(rank)));
  }
  return ports;
}

/// Finds where the stand-in listens, as every node computes it: with the token that srun sent, at the number
/// of the TCP port that its rank has for itself.
Result<step::SrunLink> find_stand_in(const launch::StepPlan& plan, const NodeFacts& facts,
                                     const EnvironmentReader& environment) {
  const auto channel = step::ReportChannel::parse(environment(step::report_variable).value_or(""));
  if (!channel) return Error{Errc::unavailable, "srun sent no token"};
  if (!facts.address_of_stand_in) return facts.address_of_stand_in.error();
  const launch::TaskMap& map = plan.placement.map;
  const std::uint32_t port = plan.rendezvous.port + map.local_rank_of(rank_of_stand_in(plan.spec, map.size()));
  if (port > std::numeric_limits<std::uint16_t>::max()) return Error{Errc::unavailable, "no port is left for it"};
  return step::SrunLink{*facts.address_of_stand_in, {static_cast<std::uint16_t>(port), channel->token}};
}

/// Where no srun waits for the step: one of its nodes answers the others, if they can find it.
void plan_stand_in(NodePlan& plan, const NodeFacts& facts, const EnvironmentReader& environment) {
  if (facts.has_srun || !plan.is_whole_step || plan.ranks.empty()) return;
  const std::uint32_t rank = rank_of_stand_in(plan.step.spec, plan.step.placement.map.size());
  plan.stands_in = std::ranges::find(plan.ranks, rank) != plan.ranks.end();
  const auto link = find_stand_in(plan.step, facts, environment);
  if (link) plan.stand_in = *link;
  else if (plan.stands_in) plan.no_stand_in = no_stand_in(plan.step, link.error().message);
  plan.stands_in = plan.stands_in && link;
}

/// "is 127.0.1.1 on node1".
std::string said_of(const launch::NameTarget& target, const std::string& host) {
  if (target.where == Where::unknown) return concat({"is not answered by the name service on ", host});
  return target.where == Where::nowhere ? concat({"does not resolve on ", host})
                                        : concat({"is ", target.address, " on ", host});
}

/// For nodes whose own name does not lead to them (Debian's 127.0.1.1 in /etc/hosts, a name that nobody resolves): Gloo
/// would look it up, and is told the interface. JAX takes no such word.
void plan_gloo_interface(NodePlan& plan, const NodeFacts& facts, const EnvironmentReader& environment) {
  if (!facts.target_of || !facts.peer || facts.peer->is_loopback()) return;
  const launch::NameTarget own = facts.target_of(facts.own_name);
  if (own.where == Where::here) return;
  plan.step.gloo_interface = facts.interface_to_peer;
  if (plan.step.spec.kind == launch::Kind::jax) {
    plan.note_without_gpus =
        concat({"the node's own name ", facts.own_name, " ", said_of(own, plan.host),
                ", and JAX on CPUs gives that to its peers, which may wait for ever: give the name its real address in "
                "/etc/hosts on all nodes"});
  }
  const auto chosen = environment("GLOO_SOCKET_IFNAME");
  if (!chosen || *chosen == facts.interface_to_peer) return;
  plan.notes.push_back(
      concat({"GLOO_SOCKET_IFNAME=", *chosen, " is set by you and is kept, but the interface to the other nodes is ",
              facts.interface_to_peer}));
}

/// On rank 0's node: a name in MASTER_ADDR must lead to this node, and not by loopback, where other nodes have to reach
/// it.
Result<void> check_master_address(const NodePlan& plan, const NodeFacts& facts) {
  const launch::Rendezvous& meet = plan.step.rendezvous;
  if (facts.peer && facts.peer->is_loopback()) return {};  // several slurmd on one machine
  const bool is_name = meet.address_origin == launch::Origin::computed && !Ipv4::parse(meet.address) &&
                       !launch::interface_to_ask(meet.address);
  const auto target = is_name && facts.target_of ? facts.target_of(meet.address) : launch::NameTarget{Where::here};
  if (target.where != Where::here && target.where != Where::unknown) {
    return Error{Errc::unavailable,
                 concat({"MASTER_ADDR=", meet.address, " ", said_of(target, plan.host),
                         ", rank 0's node, so the other nodes could not reach it: use master_addr=ip, or correct "
                         "/etc/hosts or the name service"})};
  }
  launch::NetworkView network;
  network.address_of_node = [](const std::string&) -> Result<Ipv4> { return Error{Errc::unavailable, ""}; };
  return refuse_loopback(meet, plan.step.placement, network);
}

/// What the step's and the site's policies ask of this node's fabric; nullopt: nothing.
std::optional<FabricWishes> wishes_for(const NodePlan& plan, const launch::SitePolicy& site,
                                       const launch::NodeFeatures& features, std::string_view partition) {
  const launch::Spec& spec = plan.step.spec;
  const launch::RdmaPolicy rdma = choose_rdma(site, spec, partition, features).policy;
  const launch::RdmaPolicy health = choose_health(site, spec, partition);
  if (rdma == launch::RdmaPolicy::off && health == launch::RdmaPolicy::off) return std::nullopt;
  return FabricWishes{rdma, health, choose_pairs(site, spec, partition, rdma),
                      rdma_sku(site, partition, features, plan.node)};
}

}  // namespace

std::string no_stand_in(const launch::StepPlan& plan, std::string_view why) {
  return concat({"no srun waits for this step, and no node can stand in for it (", why,
                 "): the first failure is not reported",
                 has_servers(plan.spec, plan.placement.map.size())
                     ? ", and parameter servers do not end by themselves: end the step when its work is "
                       "done, or start it without --async"
                     : ""});
}

Result<NodePlan> plan_node(const NodeFacts& facts, const launch::Spec& spec, const launch::SitePolicy& site,
                           const EnvironmentReader& environment) {
  std::vector<std::string> notes;
  auto step = plan_step(facts, spec, environment, notes);
  if (!step) return step.error();
  NodePlan plan{.step = std::move(*step), .notes = std::move(notes)};
  const launch::Placement& placement = plan.step.placement;
  const std::string partition = environment("SLURM_JOB_PARTITION").value_or("");
  plan.is_whole_step = placement.map.size() == facts.items.tasks;
  plan.ranks = facts.step.ranks;
  plan.node = plan.ranks.empty() ? facts.items.node : placement.map.node_of(plan.ranks.front());
  plan.host = placement.hosts.at(plan.node);
  plan.fabric = wishes_for(plan, site, facts.step.features, partition);
  plan.trace = choose_trace(site, spec, partition);
  plan.trace_libraries = facts.trace_libraries;
  plan.requires_secret = site.secret == launch::SecretPolicy::require;
  plan_stand_in(plan, facts, environment);
  // The tasks of a heterogeneous step whose srun does not answer learn their ranks later than this: then nothing is
  // checked or claimed.
  if (plan.ranks.empty()) return plan;
  plan.ports = ports_of(plan, facts);
  if (placement.map.nodes() == 1) return plan;
  const auto checked = plan.ranks.front() == 0 ? check_master_address(plan, facts) : Result<void>();
  if (!checked) return checked.error();
  plan_gloo_interface(plan, facts, environment);
  return plan;
}

}  // namespace amldist::spank
