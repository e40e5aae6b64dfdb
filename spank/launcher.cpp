// srun, sbatch and salloc.
#include <cstdlib>

#include "core/text.hpp"
#include "frameworks/task_environment.hpp"
#include "rendezvous/launch_record.hpp"
#include "rendezvous/master_address.hpp"
#include "spank/command_line.hpp"
#include "spank/contexts.hpp"
#include "spank/plugstack.hpp"
#include "spank/report.hpp"
#include "spank/slurm_api.hpp"

namespace amldist::spank {
namespace {

using text::concat;

/// The site's ports less those that this machine's kernel hands out to others.
Result<PortRanges> usable_ports(const SitePolicy& policy) {
  PortRanges ports = policy.ports.without(kernel_ports());
  if (!ports.empty()) return ports;
  return Error{Errc::unavailable,
               concat({"every port of the site's port_range=", policy.ports.to_string(),
                       " is in the kernel's ip_local_port_range or reserved: the administrator must choose another"})};
}

Result<LaunchRecord> make_record(const Session& session, const Spec& spec, const Placement& placement,
                                 std::uint32_t job_id, std::uint32_t step_id) {
  // What srun sees of a heterogeneous step is one component; the nodes count the whole.
  if (!may_start_components()) {
    if (auto counts = check_counts(spec, placement.map); !counts) return counts.error();
  }
  auto address = choose_master_address(spec, session.policy, placement, this_machine(slurm_node_address));
  if (!address) return address.error();
  auto ports = usable_ports(session.policy);
  if (!ports) return ports.error();
  return LaunchRecord{job_id, step_id, std::move(*address), std::move(*ports), placement.map.to_string()};
}

std::optional<std::string> own_variable(std::string_view name) {
  const char* const value = std::getenv(std::string(name).c_str());
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

/// Computes rank 0's environment as its node will, so that what cannot be right is refused before anything starts: a
/// MASTER_PORT that is none, a TF_CONFIG over the kernel's limit. Under --export the tasks may get another environment
/// than srun's, and in a heterogeneous step srun sees one component only; then the nodes judge.
Result<void> rehearse(const Spec& spec, const Placement& placement, const LaunchRecord& record) {
  if (may_start_components() || own_variable("SLURM_EXPORT_ENV").value_or("ALL") != "ALL") return {};
  std::vector<std::string> notes;
  auto rendezvous =
      settle(spec, {record.address, record.ports, JobName{{}, record.job_id, 0}, record.step_id}, own_variable, notes);
  if (!rendezvous) return rendezvous.error();
  const auto patch = task_environment({spec, placement, std::move(*rendezvous), {}}, 0, own_variable);
  if (!patch) return patch.error();
  return {};
}

void tell_placement(const Spec& spec, const Placement& placement, const LaunchRecord& record) {
  tell_user(concat({to_string(spec.kind), " ", to_string(spec.launch), ": ", text::count(placement.map.size(), "task"),
                    " on ", text::count(placement.map.nodes(), "node"), ", map ", record.map, " (",
                    to_string(placement.provenance), ": ", placement.source, "), rank 0 on ", placement.master_host(),
                    ", address ", record.address}));
}

}  // namespace

Result<void> check_option(const Session& session) {
  const auto spec = session.spec();
  if (!spec) return spec.error();
  if (session.mentions_differ && has_component_separator()) {
    return Error{Errc::mismatch,
                 "the components have different --aml-dist options, but one counts for the whole step: give it once"};
  }
  if (spec->kind == Kind::none) return {};
  if (session.policy.disabled) {
    tell_user("switched off by the administrator: --aml-dist has no effect");
    return {};
  }
  if (is_loaded_as_optional()) {
    tell_user(
        "plugstack.conf loads this plugin as optional, so Slurm would run the step even if it has to be refused: "
        "ask the administrator for 'required'");
  }
  if (spec->rdma == RdmaPolicy::require) {
    return Error{Errc::unavailable,
                 "rdma=require: this release cannot verify InfiniBand yet, so it must not promise to: "
                 "use rdma=off"};
  }
  if (spec->rdma == RdmaPolicy::prefer) tell_user("rdma=prefer: this release does not verify InfiniBand yet");
  if (spec->verbose) {
    for (const std::string& complaint : session.complaints) tell_user(complaint);
  }
  return {};
}

void open_reports(Session& session) {
  ::unsetenv(report_variable);  // an outer step's srun must not hear of this one
  const auto spec = session.spec();
  if (!spec || spec->kind == Kind::none || session.policy.disabled) return;
  if (is_being_debugged()) return;  // a guardian would come between slurmstepd and the program that it traces
  auto listener = FailureListener::open();
  if (!listener) return;
  if (::setenv(report_variable, (*listener)->channel().to_string().c_str(), 1) != 0) return;
  session.listener = std::move(*listener);
}

Result<void> prepare_launch(Session& session, const Handle& handle) {
  ::unsetenv(launch_record_variable);  // an outer step's record says nothing about this one
  if (session.is_idle()) return {};
  const auto spec = session.spec_in_partition(own_variable("SLURM_JOB_PARTITION").value_or(""));
  if (!spec) return spec.error();
  if (spec->kind == Kind::none) return {};
  const auto job_id = handle.number(S_JOB_ID, "S_JOB_ID");
  if (!job_id) return job_id.error();
  const auto step_id = handle.number(S_JOB_STEPID, "S_JOB_STEPID");
  if (!step_id) return step_id.error();
  const auto tasks = handle.number(S_JOB_TOTAL_TASK_COUNT, "S_JOB_TOTAL_TASK_COUNT");
  const std::uint32_t known_tasks = tasks && !may_start_components() ? *tasks : 0;
  if (session.listener) session.listener->watch({*job_id, *step_id, known_tasks});
  const auto placement = fetch_step_layout(*job_id, *step_id);
  // Components inside one job have no common layout that could be read here; every node asks for each component's.
  if (!placement && may_start_components()) return {};
  if (!placement) return placement.error();
  const auto record = make_record(session, *spec, *placement, *job_id, *step_id);
  if (!record) return record.error();
  if (auto rehearsed = rehearse(*spec, *placement, *record); !rehearsed) return rehearsed.error();
  const std::string text = record->to_string();
  if (text.size() + sizeof "SLURM_AMLDIST_LAUNCH=" > longest_environment_string) {
    return Error{Errc::limit, "the task map of this host file is too long for one variable: use block or cyclic"};
  }
  if (::setenv(launch_record_variable, text.c_str(), 1) != 0) {
    return Error{Errc::internal, "srun's environment takes no more variables"};
  }
  if (spec->verbose) tell_placement(*spec, *placement, *record);
  return {};
}

void withdraw_launch(Session& session) noexcept {
  ::unsetenv(launch_record_variable);
  ::unsetenv(report_variable);
  session.listener.reset();
}

}  // namespace amldist::spank
