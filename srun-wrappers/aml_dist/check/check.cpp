#include "aml_dist/check/check.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <iterator>

#include "aml_dist/check/check_launch.hpp"
#include "aml_dist/check/check_metrics.hpp"
#include "aml_dist/check/check_output.hpp"
#include "aml_dist/check/check_step.hpp"
#include "aml_dist/check/node_verdict.hpp"
#include "aml_dist/check/site_checks.hpp"
#include "aml_dist/check/sku_list.hpp"
#include "base/os/environment.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"
#include "collective/settings.hpp"
#include "fabric/checks/checks.hpp"
#include "fabric/checks/gpu_checks.hpp"
#include "fabric/checks/topology_file.hpp"
#include "fabric/facts/kernel_log.hpp"
#include "fabric/facts/settings.hpp"
#include "fabric/gpu/gpu_reader.hpp"
#include "fabric/gpu/nccl_speed.hpp"
#include "fabric/report/report_json.hpp"
#include "fabric/verbs/verbs_probe.hpp"
#include "shared/exit_status.hpp"
#include "shared/programs.hpp"
#include "shared/terminal.hpp"

namespace amldist::tools {
namespace {

using commands::fail;
using fabric::CheckRequest;
using fabric::Evidence;
using fabric::NodeFacts;
using fabric::Verdict;
using text::concat;

constexpr const char* footer =
    "Examples:\n"
    "  aml-dist check                                   this node, as far as it goes\n"
    "  aml-dist check --policy require --sku Standard_ND96isr_H100_v5\n"
    "  srun -N4 --ntasks-per-node=1 aml-dist check      a step's nodes\n"
    "  aml-dist check --sysfs-root tree --dev-root dev  another machine's files\n"
    "\n"
    "Exit status: 0 verified, warnings included; 1 a check failed;\n"
    "3 nothing to verify; others as in aml_dist(7).";

bool is_json(const CheckOptions& options) { return options.json || options.format == "json"; }

/// Explicit before guessed: the option, then the SKU's expectation; else whatever is there is verified.
void choose_policy(const CheckOptions& options, CheckRequest& request) {
  if (const auto named = launch::policy_from_name(options.policy)) {
    request.policy = *named;
    request.policy_source = "--policy";
  } else if (request.sku && request.sku->has_verbs()) {
    request.policy = launch::RdmaPolicy::require;
    request.policy_source = "the SKU";
  }
}

int list_skus(const CheckOptions& options) {
  const auto table = fabric::load_sku_table(options.sku_table);
  if (!table) return fail(table.error());
  std::fputs((is_json(options) ? skus_as_json(*table) : skus_as_table(*table)).c_str(), stdout);
  return commands::exit_done;
}

Result<CheckRequest> make_request(const CheckOptions& options) {
  CheckRequest request;
  request.environment = own_variable;
  request.unknown_fails = options.unknown == "fail";
  if (!options.sku.empty()) {
    const auto table = fabric::load_sku_table(options.sku_table);
    if (!table) return table.error();
    auto sku = table->find(options.sku);
    if (!sku) return sku.error();
    request.sku = std::move(*sku);
  }
  choose_policy(options, request);
  return request;
}

Result<void> check_roots(const CheckOptions& options) {
  for (const auto& [name, path] :
       {std::pair("--sysfs-root", options.sysfs_root), std::pair("--dev-root", options.dev_root)}) {
    if (path.empty() || fabric::is_folder(path)) continue;
    const bool missing = ::access(path.c_str(), F_OK) != 0;
    return Error{missing ? Errc::not_found : Errc::invalid_argument,
                 concat({name, " ", text::quote(path), missing ? " does not exist" : " is not a folder"})};
  }
  return {};
}

/// The history of the counters, brought up to date. A file that cannot be used is a warning, and is replaced.
fabric::CounterHistory keep_baseline(const CheckOptions& options, const NodeFacts& node) {
  fabric::CounterHistory history;
  history.now = static_cast<std::uint64_t>(::time(nullptr));
  if (options.baseline.empty()) return history;
  fabric::Baseline baseline;
  if (const auto content = read_whole_file(options.baseline, fabric::longest_baseline)) {
    auto parsed = fabric::Baseline::parse(*content);
    if (parsed) baseline = std::move(*parsed);
    else
      history.problem =
          concat({"baseline ", text::quote(options.baseline), ": ", parsed.error().message, ", begun anew"});
  } else if (content.error().code != Errc::not_found) {
    history.problem = concat({"baseline ", text::quote(options.baseline), ": ", content.error().message});
  }
  history.baseline = baseline;
  baseline.record(node, history.now);
  if (const auto written = write_whole_file(options.baseline, baseline.to_string()); !written) {
    history.problem =
        concat({"baseline ", text::quote(options.baseline), " cannot be written: ", written.error().message});
  }
  return history;
}

void read_log(const CheckOptions& options, Evidence& evidence) {
  if (options.kernel_log.empty() && !options.sysfs_root.empty()) {
    evidence.no_kernel_log.reason = "the kernel log of this machine does not describe --sysfs-root";
    return;
  }
  auto lines = fabric::read_kernel_log(options.kernel_log.empty() ? "/dev/kmsg" : options.kernel_log);
  if (lines) evidence.kernel_log = std::move(*lines);
  else evidence.no_kernel_log = {lines.error().message, !options.kernel_log.empty()};
}

/// The GPUs that this node should have: Slurm's share of a job, else the SKU's, else those on the bus.
fabric::GpuExpectation expected_gpus(const NodeFacts& node, const CheckRequest& request) {
  // The library knows one vendor's GPUs: beside NVIDIA's, one of AMD's is a display.
  const bool nvidia = std::ranges::any_of(node.gpus, &fabric::GpuFacts::nvidia);
  const auto on_bus = static_cast<std::uint32_t>(std::ranges::count_if(
      node.gpus, [nvidia](const auto& gpu) { return gpu.nvidia == nvidia && !fabric::is_given_away(gpu.driver); }));
  const auto share = text::to_number(request.environment("SLURM_GPUS_ON_NODE").value_or(""), 1024);
  if (share) return {static_cast<std::uint32_t>(*share), "Slurm", on_bus, true};
  if (request.sku && request.sku->gpus) return {request.sku->gpus, "the SKU", on_bus};
  if (on_bus > 0 && (node.nvidia_driver || node.amd_driver)) return {on_bus, "the PCI bus", on_bus};
  return {};
}

/// The GPUs of this machine; with --sysfs-root only from a library that was named.
fabric::GpuStates ask_driver(const CheckOptions& options, const NodeFacts& node, const CheckRequest& request) {
  const bool amd = !node.gpus.empty() && std::ranges::none_of(node.gpus, &fabric::GpuFacts::nvidia);
  const std::string library = request.environment(fabric::variable::nvml_library).value_or("");
  fabric::GpuStates states;
  states.problem = "the driver of this machine does not describe --sysfs-root";
  if (options.sysfs_root.empty() || !library.empty()) {
    states = fabric::read_gpu_states(amd ? fabric::GpuVendor::amd : fabric::GpuVendor::nvidia, library,
                                     std::chrono::seconds(options.timeout_s));
  }
  add_bus_facts(states, node);
  return states;
}

/// Where GPUs and cards are, against the SKU's file.
fabric::Check check_placement(const NodeFacts& node, const CheckRequest& request) {
  if (!request.sku || request.sku->topology.empty()) {
    return {"gpu.topology", Verdict::skip, "the SKU names no topology file", ""};
  }
  const std::string& path = request.sku->topology;
  const auto unknown = [&path](const Error& error) {
    return fabric::Check{"gpu.topology", Verdict::unknown, concat({text::quote(path), " ", error.message}),
                         "correct topology= in the table of SKUs"};
  };
  const auto content = read_whole_file(path, fabric::longest_topology);
  if (!content) return unknown(content.error());
  const auto expected = fabric::parse_topology(*content);
  return expected ? check_topology(node, *expected) : unknown(expected.error());
}

/// What the site's own tools say; of this machine, so not with --sysfs-root unless the site's file is named.
std::vector<fabric::Check> ask_site(const CheckOptions& options) {
  // Only the plugin knows the file in a step: another plugstack.conf may be in the task's view.
  const bool is_asked = !options.site_file.empty() || (options.sysfs_root.empty() && !options.task_part);
  if (!is_asked) return {};
  const launch::SitePolicy policy = read_site_policy(options.site_file);
  if (!policy.refusal.empty())
    return {{"site.file", options.task_part ? Verdict::unknown : Verdict::fail, policy.refusal,
             "aml-dist check-config shows all that is wrong"}};
  constexpr std::chrono::seconds longest_at_launch{10};
  return run_site_checks(policy,
                         options.task_part ? longest_at_launch : std::chrono::seconds(launch::longest_site_check));
}

/// Adds the checks of GPUs and the site's, and drops those of the host with --health off. Returns the driver's answer.
fabric::GpuStates add_health(const CheckOptions& options, const NodeFacts& node, const CheckRequest& request,
                             const Evidence& evidence, fabric::Report& report) {
  const launch::RdmaPolicy health = launch::policy_from_name(options.health).value_or(launch::RdmaPolicy::prefer);
  if (request.policy == launch::RdmaPolicy::off) return {};
  if (health == launch::RdmaPolicy::off) {
    std::erase_if(report.checks, [](const fabric::Check& check) { return check.id.starts_with("host."); });
    return {};
  }
  fabric::GpuStates states = ask_driver(options, node, request);
  fabric::GpuExpectation expected = expected_gpus(node, request);
  // Without a machine to ask, only the bus of the tree can be counted.
  const bool can_ask = options.sysfs_root.empty() || request.environment(fabric::variable::nvml_library).has_value();
  if (!can_ask && !states.asked && expected.on_bus >= expected.count.value_or(0)) expected.count.reset();
  if (!can_ask && expected.on_bus == 0) expected.count.reset();
  std::vector<fabric::Check> checks = verify_gpus(states, node, expected, evidence.kernel_log, health);
  checks.push_back(check_placement(node, request));
  std::ranges::move(ask_site(options), std::back_inserter(checks));
  for (fabric::Check& check : checks) {
    if (health == launch::RdmaPolicy::prefer && check.verdict == Verdict::fail) check.verdict = Verdict::warn;
    report.checks.push_back(std::move(check));
  }
  return states;
}

/// The bus bandwidth between the node's GPUs as NCCL measures it.
void add_nccl(const CheckOptions& options, const CheckRequest& request, fabric::Report& report) {
  const launch::RdmaPolicy health = launch::policy_from_name(options.health).value_or(launch::RdmaPolicy::prefer);
  if (request.policy == launch::RdmaPolicy::off || health == launch::RdmaPolicy::off) return;
  const auto speed = fabric::measure_nccl(request.environment(fabric::variable::cuda_library).value_or(""),
                                          request.environment(collective::variable::nccl_library).value_or(""),
                                          std::chrono::seconds(3 * options.timeout_s));
  fabric::Check check = judge_nccl(speed, request.sku ? request.sku->nccl : std::nullopt);
  if (health == launch::RdmaPolicy::prefer && check.verdict == Verdict::fail) check.verdict = Verdict::warn;
  report.checks.push_back(std::move(check));
}

/// In a step one process of each node is enough; the others neither check nor print.
bool is_silent_task(const CheckOptions& options) {
  const auto context = read_step_context(own_variable, options.port);
  return context && *context && !(*context)->takes_part;
}

/// Whether a judged port is coming up: waiting may help.
bool is_coming_up(const NodeFacts& node, const CheckRequest& request) {
  const auto ports = judged_ports(node, request);
  return std::ranges::any_of(ports, [](const fabric::JudgedPort& each) {
    const auto state = each.port->state.present() ? fabric::parse_state(each.port->state.text) : std::nullopt;
    return state == fabric::PortState::init || state == fabric::PortState::armed;
  });
}

NodeFacts read_settled_node(const CheckOptions& options, const CheckRequest& request) {
  const auto roots = fabric::Roots::from_options(options.sysfs_root, options.dev_root);
  NodeFacts node = fabric::read_node(roots);
  constexpr timespec pause = {0, 250'000'000};
  for (std::uint32_t i = 0; i < options.wait_s * 4 && is_coming_up(node, request); ++i) {
    if (i == 0) std::fprintf(stderr, "aml-dist: waiting up to %u s for ports to become active\n", options.wait_s);
    static_cast<void>(::nanosleep(&pause, nullptr));
    node = fabric::read_node(roots);
  }
  return node;
}

fabric::ProcessFacts read_own_process(const CheckOptions& options, const NodeFacts& node, const CheckRequest& request) {
  fabric::ProcessFacts process = fabric::read_process(node);
  if (!options.sysfs_root.empty()) {
    process.verbs.reason = "the devices come from --sysfs-root: verbs would open those of this machine";
  } else if (options.no_verbs) {
    process.verbs.reason = "--no-verbs";
  } else if (!judged_ports(node, request).empty()) {
    process.verbs = fabric::probe_verbs(node, request, std::chrono::seconds(options.timeout_s));
  }
  return process;
}

int exit_status_of(Verdict verdict) {
  if (verdict == Verdict::fail) return commands::exit_failed;
  return verdict == Verdict::skip ? commands::exit_skipped : commands::exit_done;  // warn and unknown: done
}

/// The output that aml-run asks for before a program starts, in the job's own output: a line for each failed check,
/// else nothing.
void print_failures(const fabric::Report& report) {
  for (const fabric::Check& check : report.checks) {
    if (check.verdict != Verdict::fail) continue;
    std::printf("aml-dist: rdma=%s failed: %s: %s%s%s\n", std::string(to_string(report.policy)).c_str(),
                check.id.c_str(), check.evidence.c_str(), check.remedy.empty() ? "" : ": ", check.remedy.c_str());
  }
}

void print_exclusion(const StepReport& step) {
  if (const std::string nodes = nodes_to_exclude(step); !nodes.empty()) std::printf("%s\n", nodes.c_str());
}
void print_exclusion(const NodeVerification& node) {
  if (node.report.verdict() == Verdict::fail) std::printf("%s\n", node.host.c_str());
}

/// Prints, and returns the exit status; for a node and for a step.
template <typename Verification>
int finish(const CheckOptions& options, const Verification& verification) {
  if (options.exclude) print_exclusion(verification);
  else if (options.before_program) print_failures(verification.report);
  else if (options.format == "openmetrics") std::fputs(to_metrics(verification).c_str(), stdout);
  else if (options.format == "nodeverdict") std::printf("%s\n", to_nodeverdict(verification).c_str());
  else if (is_json(options)) std::printf("%s\n", to_json(verification).c_str());
  else std::fputs(to_table(verification, commands::wants_colour(STDOUT_FILENO), options.quiet).c_str(), stdout);
  return exit_status_of(verification.report.verdict());
}

void print_checks(const std::vector<fabric::Check>& checks) {
  std::fputs(fabric::to_lines(checks).c_str(), stdout);
  static_cast<void>(std::fflush(stdout));  // printed even if something hangs afterwards
}

bool has_failed(const std::vector<fabric::Check>& checks) {
  return std::ranges::any_of(checks, [](const fabric::Check& each) { return each.verdict == Verdict::fail; });
}

/// The fabric as far as only this process can check it. Returns whether nothing has failed.
bool print_fabric_part(const CheckOptions& options, const NodeFacts& node, const CheckRequest& request,
                       fabric::NodeSummary& summary) {
  const fabric::ProcessFacts process = read_own_process(options, node, request);
  add_process_traits(summary, process);
  const std::vector<fabric::Check> own = {
      check_device_nodes(node, request, process), check_provider(node, request, process),
      check_memlock(node, request, process),      check_gpudirect(node, request, process),
      check_environment(node, request),           check_loopback(node, request, process)};
  print_checks(own);
  return !has_failed(own);
}

/// GPUs and the host. Returns whether nothing has failed.
bool print_health_part(const CheckOptions& options, const NodeFacts& node, CheckRequest request,
                       fabric::NodeSummary& summary) {
  Evidence evidence;
  read_log(options, evidence);
  request.policy = launch::RdmaPolicy::prefer;
  fabric::Report report;
  add_gpu_traits(summary, add_health(options, node, request, evidence, report));
  for (const fabric::Check& host :
       {check_pci_functions(node), check_pci_errors(node, request), check_bridges(node, request)}) {
    report.checks.push_back(host);
  }
  print_checks(report.checks);
  return !has_failed(report.checks);
}

/// The output that the plugin asks for: the checks that only the task's own context can make, as lines; then, if
/// nothing has failed, the checks with other nodes.
int print_task_part(const CheckOptions& options, const CheckRequest& request) {
  const NodeFacts node = fabric::read_node(fabric::Roots::from_options(options.sysfs_root, options.dev_root));
  const bool rdma = request.policy != launch::RdmaPolicy::off;
  fabric::NodeSummary summary{node.host, false, {}, {}, {}};
  if (rdma) summary = summarise(node, request, fabric::Report());
  if (options.health != "off" && !print_health_part(options, node, request, summary)) return commands::exit_done;
  if (rdma && !print_fabric_part(options, node, request, summary)) return commands::exit_done;
  tell_settings(options, summary, rdma ? request.policy : *launch::policy_from_name(options.health));
  if (rdma) print_checks(write_between_nodes(options, node, request));
  return commands::exit_done;
}

}  // namespace

CLI::App* add_check(CLI::App& app, CheckOptions& options) {
  CLI::App* const command = app.add_subcommand("check", "Verify that this node, or a step's nodes, can do RDMA");
  command->footer(footer);
  command->add_option("--policy", options.policy, "require: no device is a failure; prefer: verify what is there; off")
      ->check(CLI::IsMember({"require", "prefer", "off"}));
  command->add_option("--sku", options.sku, "what the node should have: a VM size such as Standard_ND96isr_H100_v5")
      ->type_name("NAME");
  command->add_option("--sku-table", options.sku_table, "table of SKUs (default: /etc/aml-dist/skus.conf)")
      ->type_name("FILE");
  command->add_option("--sysfs-root", options.sysfs_root, "read this folder instead of /sys")->type_name("DIR");
  command->add_option("--dev-root", options.dev_root, "look here for infiniband/uverbsN instead of /dev")
      ->type_name("DIR");
  command->add_option("--baseline", options.baseline, "keep error counters in this file and judge what was added")
      ->type_name("FILE");
  command
      ->add_option("--site-file", options.site_file,
                   "run the site_check lines of this file (default: config= of plugstack.conf)")
      ->type_name("FILE");
  command->add_option("--kernel-log", options.kernel_log, "read this instead of /dev/kmsg")->type_name("FILE");
  command->add_option("--wait", options.wait_s, "wait up to this many seconds for ports that are coming up")
      ->check(CLI::Range(0U, 600U));
  command->add_option("--timeout", options.timeout_s, "timeout in seconds for anything that may hang")
      ->capture_default_str()
      ->check(CLI::Range(1U, 3600U));
  command
      ->add_option("--port", options.port,
                   "in a step: port where its nodes meet (default: reserved, or from job and step)")
      ->check(CLI::Range(1U, 65535U));
  command->add_flag("--pairs", options.pairs,
                    "in a step: write to the nodes 1, 2, 4, ... further, not only to the next");
  command->add_flag("--bandwidth", options.bandwidth, "in a step: measure the writes, and expect 90 % of the rate");
  command->add_flag(
      "--bench", options.bench,
      "measure bandwidth and latency of each port, between the nodes of a step as with --pairs, or to itself");
  command
      ->add_option("--record", options.record, "with --bench: keep what is slow in this file, and say how often it was")
      ->type_name("FILE")
      ->needs("--bench");
  command->add_flag(
      "--exclude", options.exclude,
      "in a step: print the nodes that are slow or fail a check, for --exclude of the next, and nothing else");
  command->add_flag("--verbose,-v", options.verbose, "report progress");
  command->add_flag("--no-verbs", options.no_verbs, "files and limits only: open no device");
  command->add_flag("--quiet,-q", options.quiet, "print only warnings and failures");
  command->add_option("--unknown", options.unknown, "with --policy require: the effect of a check that is unknown")
      ->capture_default_str()
      ->check(CLI::IsMember({"warn", "fail"}));
  command->add_option("--health", options.health, "require: a sick GPU or host is a failure; prefer: a warning; off")
      ->capture_default_str()
      ->check(CLI::IsMember({"require", "prefer", "off"}));
  command->add_flag("--list-sku", options.list_sku, "print the table of SKUs, and do nothing else");
  CLI::Option* const format =
      command
          ->add_option("--format", options.format,
                       "text, json, openmetrics for Prometheus, or nodeverdict as NVIDIA Health Validation")
          ->check(CLI::IsMember({"text", "json", "openmetrics", "nodeverdict"}));
  command->add_flag("--json", options.json, "the same as --format json")->excludes(format);
  command->add_flag("--task-part", options.task_part)->group("");
  command->add_option("--launch-pairs", options.launch_pairs)->group("");
  command->add_option("--launch-node", options.launch_node)->group("");
  command->add_option("--launch-nodes", options.launch_nodes)->group("");
  command->add_option("--launch-names", options.launch_names)->group("");
  command->add_flag("--before-program", options.before_program)->group("");
  return command;
}

int check(const CheckOptions& options) {
  if (options.list_sku) return list_skus(options);
  if (auto status = check_roots(options); !status) return fail(status.error());
  const auto request = make_request(options);
  if (!request) return fail(request.error());
  if (options.task_part) return print_task_part(options, *request);
  if (is_silent_task(options)) return commands::exit_done;
  const NodeFacts node = read_settled_node(options, *request);
  Evidence evidence;
  evidence.counters = keep_baseline(options, node);
  evidence.process = read_own_process(options, node, *request);
  read_log(options, evidence);
  fabric::Report report = verify_node(node, *request, evidence);
  const fabric::GpuStates gpus = add_health(options, node, *request, evidence, report);
  if (options.bench) add_nccl(options, *request, report);  // before this process has asked CUDA for anything
  NodeVerification verification{node.host, report, settings_of(node, *request), summarise(node, *request, report)};
  add_gpu_traits(verification.summary, gpus);
  add_process_traits(verification.summary, *evidence.process);
  const auto context = read_step_context(own_variable, options.port);
  if (!context) return fail(context.error());
  if (!*context || request->policy == launch::RdmaPolicy::off) {
    if (options.bench) add_own_speed(options, node, *request, verification.report);
    return finish(options, verification);
  }
  const auto outcome = verify_step(**context, options, node, *request, verification.summary);
  if (!outcome) return fail(outcome.error());
  if (outcome->whole) return finish(options, *outcome->whole);
  return exit_status_of(outcome->verdict);
}

}  // namespace amldist::tools
