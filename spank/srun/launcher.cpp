#include "spank/srun/launcher.hpp"

#include <sys/random.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <limits>
#include <optional>
#include <vector>

#include "base/os/environment.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"
#include "base/time/calendar_time.hpp"
#include "fabric/report/verdict.hpp"
#include "launch/frameworks/launcher_daemons.hpp"
#include "launch/frameworks/launchers.hpp"
#include "launch/frameworks/task_environment.hpp"
#include "launch/frameworks/verbose.hpp"
#include "launch/placement/components.hpp"
#include "launch/placement/network_topology.hpp"
#include "launch/rendezvous/master_address.hpp"
#include "launch/site/plugstack.hpp"
#include "launch/site/rdma_policy.hpp"
#include "launch/site/trace_policy.hpp"
#include "spank/server/end_of_step.hpp"
#include "spank/server/job_comment.hpp"
#include "spank/server/step_server.hpp"
#include "spank/slurm/duplicate_load.hpp"
#include "spank/slurm/output.hpp"
#include "spank/slurm/slurm_api.hpp"
#include "spank/slurm/step_reader.hpp"
#include "spank/srun/command_line.hpp"
#include "step/messages/end_record.hpp"
#include "step/messages/job_record.hpp"
#include "step/messages/launch_record.hpp"
#include "step/messages/step_secret.hpp"

namespace amldist::spank {
namespace {

using text::concat;

/// The site's ports less those that this machine's kernel hands out to others.
Result<PortRanges> usable_ports(const launch::SitePolicy& policy) {
  PortRanges ports = policy.ports.without(launch::kernel_ports());
  if (!ports.empty()) return ports;
  return Error{Errc::unavailable,
               concat({"every port of the site's port_range=", policy.ports.to_string(),
                       " is in the kernel's ip_local_port_range or reserved: the administrator must choose another"})};
}

/// What srun knows of its step.
struct Launch {
  std::uint32_t job_id = 0;
  std::uint32_t step_id = 0;
  launch::Placement placement;
  std::vector<launch::Component> components = {};  ///< of a heterogeneous step, for its record
};

/// The first job of a heterogeneous job that srun started or runs in.
std::optional<std::uint32_t> leader_job() {
  for (const char* const name : {"SLURM_JOB_ID_HET_GROUP_0", "SLURM_JOB_ID_PACK_GROUP_0"}) {
    const auto id = text::to_number(own_variable(name).value_or(""), std::numeric_limits<std::uint32_t>::max());
    if (id) return static_cast<std::uint32_t>(*id);
  }
  return std::nullopt;
}

/// nullopt when the components cannot be found here: then their nodes ask slurmctld themselves.
Result<std::optional<Launch>> fetch_launch(std::uint32_t job_id, std::uint32_t step_id) {
  auto groups = component_groups();
  if (groups.size() < 2) {
    auto placement = fetch_step_layout(job_id, step_id);
    if (!placement) return placement.error();
    return std::optional(Launch{job_id, step_id, std::move(*placement)});
  }
  const std::uint32_t leader = leader_job().value_or(job_id);
  for (std::uint32_t& group : groups) group += leader;  // now the components' jobs
  auto layout = fetch_heterogeneous_layout(job_id, step_id, {std::move(groups), 0});
  if (!layout) return std::optional<Launch>();
  const std::uint32_t first_job = layout->components.front().job_id;
  return std::optional(Launch{first_job, step_id, std::move(layout->placement), std::move(layout->components)});
}

Result<step::LaunchRecord> make_record(const launch::SitePolicy& policy, const launch::Spec& spec,
                                       const Launch& launch) {
  const launch::NetworkView network = launch::this_machine(slurm_node_ipv4);
  auto address = choose_master_address(spec, policy, launch.placement, network);
  if (!address) return address.error();
  auto peers = choose_node_hosts(spec, policy, launch.placement, *address, network);
  if (!peers) return peers.error();
  auto ports = usable_ports(policy);
  if (!ports) return ports.error();
  auto features = read_features(policy, spec, launch.placement.hosts);
  if (!features) return features.error();
  return step::LaunchRecord{
      launch.job_id,     launch.step_id,       std::move(*address), std::move(*ports), launch.placement.map.to_string(),
      launch.components, std::move(*features), std::move(*peers)};
}

/// Computes rank 0's environment as its node will, so that an impossible MASTER_PORT or a TF_CONFIG over the kernel's
/// limit is refused before anything starts. Under --export the tasks may get another environment than srun's: then only
/// the nodes can tell.
Result<void> rehearse(const launch::Spec& spec, const launch::Placement& placement, const step::LaunchRecord& record) {
  if (own_variable("SLURM_EXPORT_ENV").value_or("ALL") != "ALL") return {};
  std::vector<std::string> notes;
  auto rendezvous =
      settle(spec, {record.address, record.ports, launch::JobName{{}, record.job_id, 0}, record.step_id, record.peers},
             own_variable, notes);
  if (!rendezvous) return rendezvous.error();
  if (auto status = refuse_loopback(*rendezvous, placement, launch::this_machine(slurm_node_ipv4)); !status)
    return status;
  const auto patch = launch::task_environment({spec, placement, std::move(*rendezvous), {}}, 0, own_variable);
  if (!patch) return patch.error();
  return {};
}

/// Tells the user that his key lowers the site's policy for the fabric; with `verbose` also where the policy comes
/// from.
void tell_policy(const launch::SitePolicy& site, const launch::Spec& spec, const launch::NodeFeatures& features) {
  const std::string partition = own_variable("SLURM_JOB_PARTITION").value_or("");
  if (const auto lowered = lowered_requirement(site, spec, partition, features)) tell_user(*lowered);
  const launch::RdmaChoice choice = choose_rdma(site, spec, partition, features);
  if (!spec.verbose || choice.policy == launch::RdmaPolicy::off) return;
  tell_user(concat({"rdma=", to_string(choice.policy), " by ", choice.source}));
}

/// A step that this srun serves; kill-on-bad-exit is read here, before srun changes its environment.
ServedStep served(const SrunSession& session, std::uint32_t job_id, std::uint32_t step_id) {
  return {.job_id = job_id,
          .step_id = step_id,
          .comments = session.request.policy.job_comment,
          .kills_on_bad_exit = kills_on_bad_exit(session.program_words),
          .record_files = session.record_files};
}

/// The step's nodes, with the step as their slurmds know it.
std::vector<ServedNodes> served_nodes(const Launch& launch) {
  if (launch.components.empty()) return {{launch.placement.hosts, launch.job_id}};
  std::vector<ServedNodes> parts;
  const bool in_one_job = launch.components.front().job_id == launch.components.back().job_id;
  for (std::uint32_t number = 0; number < launch.components.size(); ++number) {
    const launch::Component& each = launch.components[number];
    const auto hosts = Hostlist::parse(each.hosts);
    if (!hosts) return {};
    parts.push_back({*hosts, each.job_id, in_one_job ? number : NO_VAL});
  }
  return parts;
}

/// Asked when nodes do not report. Another release of the plugin takes the record for an outer step's.
std::string why_record_is_gone() {
  return own_variable(step::launch_record_variable) ? std::string() : describe_other_release();
}

/// Sends the record to the nodes: in the environment, and through the server to those that it does not reach.
Result<void> send_record(SrunSession& session, const launch::Spec& spec, const Launch& launch) {
  const auto record = make_record(session.request.policy, spec, launch);
  if (!record) return record.error();
  if (auto status = rehearse(spec, launch.placement, *record); !status) return status;
  const std::string text = record->to_string();
  if (text.size() + sizeof "SLURM_AMLDIST_LAUNCH=" > longest_environment_string) {
    return Error{
        Errc::limit,
        "the task map or the nodes' addresses are too long for one variable: use block or cyclic, or master_addr=name"};
  }
  if (::setenv(step::launch_record_variable, text.c_str(), 1) != 0) {
    return Error{Errc::internal, "out of memory: srun cannot add a variable to its environment"};
  }
  if (session.server) {
    ServedStep step = served(session, launch.job_id, launch.step_id);
    step.tasks = launch.placement.map.size();
    step.verbose = spec.verbose;
    step.why_unsent = why_record_is_gone;
    step.hosts = served_nodes(launch);
    step.variables = all_own_variables().size();
    if (!launch.components.empty()) step.record = text;
    step.trace = choose_trace(session.request.policy, spec, own_variable("SLURM_JOB_PARTITION").value_or(""));
    step.stop = spec.stop;
    session.server->serve(std::move(step));
  }
  tell_policy(session.request.policy, spec, record->features);
  if (spec.verbose) tell_user(placement_line(spec, launch.placement, record->address));
  return {};
}

/// Whether the step may get a kind. Inside a job its partition is known; an srun that has yet to allocate may get any
/// partition, and takes back what it did if that one has no kind.
bool may_concern(const StepRequest& request) {
  if (request.is_idle()) return false;
  const auto partition = own_variable("SLURM_JOB_PARTITION");
  if (request.option || partition) {
    const auto spec = request.spec_in_partition(partition.value_or(""));
    return spec && spec->kind != launch::Kind::none;
  }
  return std::ranges::any_of(request.policy.default_kind,
                             [](const auto& each) { return each.second != launch::Kind::none; });
}

/// For what a task of another step, or a batch script that inherited its environment, submits: removes what that step's
/// environment has from us. The stamp says what that is; without one nothing is removed. A launcher that is the program
/// of a per-node step (it has no RANK) passes that step's variables to its ranks, through the daemons that it starts by
/// srun.
void remove_outer_step() {
  if (starts_launcher_daemon() && !own_variable("RANK")) return;
  const EnvironmentPatch leftovers = launch::without_outer_step(own_variable);
  for (const auto& change : leftovers.changes()) ::unsetenv(change.name.c_str());
}

/// A script does what its author knows, so what it starts is warned of and never refused.
void warn_of_script(const launch::Spec& spec, const launch::StepShape& step, const std::vector<std::string>& command) {
  constexpr std::size_t most = std::size_t{64} << 10;
  const std::string file = launch::script_of(command);
  if (file.empty()) return;
  const bool is_for_shell = file != command.front();
  const auto launcher = launch::find_launcher_in_script(read_file_start(file, most), is_for_shell);
  if (!launcher) return;
  const auto warning = check_launcher(spec, step, *launcher, own_variable);
  const std::string& sentence = warning ? *warning : warning.error().message;
  if (!sentence.empty()) tell_user(concat({text::quote(file), ": ", sentence}));
}

/// For a step whose program is a launcher: its tasks must not be several worlds. Warns where that may be meant.
Result<void> refuse_several_worlds(const launch::Spec& spec, const launch::TaskMap& map, const Handle& handle) {
  const auto command = handle.command();
  const launch::StepShape step{map.size(), map.nodes(), map.most_tasks_on_a_node()};
  const auto launcher = launch::find_launcher(std::span<const std::string>(command));
  if (!launcher) {
    warn_of_script(spec, step, command);
    return {};
  }
  const auto warning = check_launcher(spec, step, *launcher, own_variable);
  if (!warning) return warning.error();
  if (!warning->empty()) tell_user(*warning);
  return {};
}

/// order=topology: an assertion about what Slurm has placed, as the counts are. Slurm alone orders hosts.
Result<void> check_order(const launch::Spec& spec, const launch::Placement& placement) {
  if (!spec.along_topology) return {};
  const auto network = launch::NetworkTopology::of_cluster();
  if (!network)
    return Error{network.error().code, concat({"order=topology: ", network.error().message, ": drop the key"})};
  const auto hosts = hosts_in_rank_order(placement);
  const std::uint64_t links = network->hops_along(hosts);
  const std::uint64_t best = network->hops_along(network->in_order(hosts));
  if (links <= best) return {};
  return Error{Errc::mismatch, concat({"order=topology: there are ", std::to_string(links),
                                       " links between neighbouring hosts, and ", std::to_string(best),
                                       " along the switches: write a host file with 'aml-dist order >hosts', and ",
                                       "start it with SLURM_HOSTFILE=hosts srun --distribution=arbitrary"})};
}

/// Makes PMIx fences wait for every node. By default Slurm's PMIx plugin (22.05 to 26.05) sends fences without data
/// over a tree, which has no branches where a step has fewer nodes than TreeWidth: each node goes on alone, and Open
/// MPI's processes get messages before they have left MPI_Init. docs/decisions/0014 has the measurements.
void use_ring_fences() { ::setenv("SLURM_PMIX_FENCE", "ring", 0); }

}  // namespace

Result<void> check_option(const SubmitterSession& session) {
  step::forget_outer_secret();
  remove_outer_step();  // here: later srun has its own copy of the environment
  const auto spec = session.request.spec();
  if (!spec) return spec.error();
  if (session.mentions_differ && has_component_separator()) {
    return Error{Errc::mismatch,
                 "the components have different --aml-dist options, but a step can have only one: give it once"};
  }
  if (spec->kind == launch::Kind::none) return {};
  if (session.request.policy.disabled) {
    tell_user("switched off by the administrator: --aml-dist has no effect");
    return {};
  }
  if (auto status = session.request.settings_are_usable(); !status) return status;
  if (launch::is_loaded_as_optional()) {
    tell_user(
        "plugstack.conf loads this plugin as optional, so Slurm would run the step even if it has to be refused: "
        "ask the administrator for 'required'");
  }
  if (spec->verbose) {
    if (session.request.variable != nullptr) tell_user(concat({"the option comes from ", session.request.variable}));
    for (const std::string& complaint : session.complaints) tell_user(complaint);
  }
  return {};
}

void open_server(SrunSession& session) {
  ::unsetenv(step::report_variable);  // an outer step's srun must not hear of this one
  for (const char* const name : {step::job_record_variable, step::end_record_variable}) {
    if (auto file = own_variable(name); file && !file->empty()) session.record_files.push_back(std::move(*file));
  }
  ::unsetenv(step::job_record_variable);  // it is of this step, not of one that its tasks may start
  session.in_job = own_variable("SLURM_JOB_ID").has_value() || names_a_job();
  if (!may_concern(session.request)) return;
  ::unsetenv("SLURM_STEP_RESV_PORTS");  // an outer step's; srun sets those of this one later
  if (is_being_debugged()) return;      // a task monitor would stand between slurmstepd and the program that it traces
  step::Token token;
  if (::getrandom(&token, sizeof token, 0) != sizeof token) return;
  constexpr StepServer::Ports any{0, 0};
  auto server = StepServer::open(srun_port_range().value_or(any), token);  // as the site's firewalls leave them open
  if (!server) return;
  if (::setenv(step::report_variable, (*server)->channel().to_string().c_str(), 1) != 0) return;
  session.server = std::move(*server);
}

Result<void> make_secret(const SrunSession& session) {
  return may_concern(session.request) ? step::send_secret() : Result<void>();
}

Result<void> expect_no_srun(const SrunSession& session) {
  // Of a heterogeneous step's components, only one gets the record that replaces this later.
  if (!may_concern(session.request) || component_groups().size() > 1) return {};
  if (::setenv(step::launch_record_variable, step::no_srun_record, 1) == 0) return {};
  return Error{Errc::internal, "out of memory: srun cannot add a variable to its environment"};
}

namespace {

/// A helper step ("srun -N1 -n1 hostname") of a job whose option has counts wants no kind.
Result<void> check_step_counts(const SrunSession& session, const launch::Spec& spec, const launch::TaskMap& map) {
  auto status = check_counts(spec, map);
  const bool is_of_job = session.option_is_inherited || session.request.variable != nullptr;
  if (status || !is_of_job) return status;
  return Error{status.error().code, concat({status.error().message,
                                            "; that option is the job's: a step without it is srun --aml-dist=none"})};
}

}  // namespace

Result<void> prepare_launch(SrunSession& session, const Handle& handle) {
  ::unsetenv(step::launch_record_variable);  // an outer step's record says nothing about this one
  if (session.request.is_idle()) return {};
  const auto spec = session.request.spec_in_partition(own_variable("SLURM_JOB_PARTITION").value_or(""));
  if (!spec) return spec.error();
  const std::vector<std::string> command = handle.command();
  session.program_words = command.size();
  if (spec->kind == launch::Kind::none || (!command.empty() && launch::is_launcher_daemon(command.front()))) {
    withdraw_launch(session);
    return {};
  }
  if (auto status = session.request.settings_are_usable(); !status) return status;
  if (spec->kind == launch::Kind::mpi) use_ring_fences();
  const auto job_id = handle.number(S_JOB_ID, "S_JOB_ID");
  if (!job_id) return job_id.error();
  const auto step_id = handle.number(S_JOB_STEPID, "S_JOB_STEPID");
  if (!step_id) return step_id.error();
  if (*step_id > SLURM_MAX_NORMAL_STEP_ID) {  // an interactive step: it has no ranks, as its nodes know too
    withdraw_launch(session);
    return {};
  }
  const auto launch = fetch_launch(*job_id, *step_id);
  if (!launch) return launch.error();
  if (!*launch) {
    if (session.server) session.server->serve(served(session, *job_id, *step_id));
    return {};
  }
  if (auto status = refuse_several_worlds(*spec, (*launch)->placement.map, handle); !status) return status;
  if (auto status = check_order(*spec, (*launch)->placement); !status) return status;
  if (auto status = check_step_counts(session, *spec, (*launch)->placement.map); !status) return status;
  return send_record(session, *spec, **launch);
}

void note_refusal(const SrunSession& session, const Handle& handle, std::string_view reason) {
  const auto job_id = handle.number(S_JOB_ID, "S_JOB_ID");
  const auto step_id = handle.number(S_JOB_STEPID, "S_JOB_STEPID");
  if (!job_id || !step_id) return;
  const step::EndRecord end{.step = concat({std::to_string(*job_id), ".", std::to_string(*step_id)}),
                            .cause = step::EndRecord::Cause::refused,
                            .status = EXIT_FAILURE,
                            .time = session.record_files.empty() ? 0 : calendar_ns() / 1'000'000'000,
                            .evidence = std::string(reason)};
  if (session.request.policy.job_comment) comment_on_job(*job_id, *step_id, end.sentence());
  if (const std::string complaint = write_end_record(end, session.record_files); !complaint.empty())
    tell_user(complaint);
}

bool leave_refusal_to_nodes(const SrunSession& session) noexcept {
  try {
    const bool one_component = component_groups().size() < 2;
    return session.in_job && one_component && ::setenv(step::launch_record_variable, step::refused_record, 1) == 0;
  } catch (const std::exception&) {  // out of memory
    return false;
  }
}

void withdraw_launch(SrunSession& session) noexcept {
  ::unsetenv(step::launch_record_variable);
  ::unsetenv(step::report_variable);
  ::unsetenv(step::secret_variable);
  session.server.reset();
}

}  // namespace amldist::spank
