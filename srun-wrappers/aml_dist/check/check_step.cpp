#include "aml_dist/check/check_step.hpp"

#include <chrono>
#include <cstdio>

#include "aml_dist/check/slow_record.hpp"
#include "base/text/hostlist.hpp"
#include "base/text/text.hpp"
#include "fabric/between_nodes/ring_test.hpp"
#include "fabric/report/report_json.hpp"
#include "launch/rendezvous/step_port.hpp"
#include "world/wireup/step_secret.hpp"

namespace amldist::tools {
namespace {

using fabric::NodeExchange;
using fabric::NodeExchangeServer;
using fabric::PairResult;
using fabric::PairResults;
using text::concat;

constexpr std::uint32_t most_nodes = 65536;

std::optional<std::uint32_t> number(const EnvironmentReader& environment, std::string_view name, std::uint32_t most) {
  const auto value = text::to_number(environment(name).value_or(""), most);
  return value ? std::optional(static_cast<std::uint32_t>(*value)) : std::nullopt;
}

/// 1, then powers of two below the number of nodes: log2(n) rounds reach every distance class.
std::vector<std::uint32_t> shifts_of(std::uint32_t nodes, bool pairs) {
  std::vector<std::uint32_t> shifts = {1};
  for (std::uint32_t shift = 2; pairs && shift < nodes; shift *= 2) shifts.push_back(shift);
  return shifts;
}

/// One ring of writes: three rounds.
Result<void> run_ring(NodeExchange& exchange, fabric::RingTest& ring, const fabric::RingPlan& plan) {
  auto neighbours = exchange.round({false, {plan.from, plan.to}}, ring.endpoints());
  if (!neighbours) return neighbours.error();
  ring.connect((*neighbours)[plan.from], (*neighbours)[plan.to]);
  if (auto status = exchange.round({}, ""); !status) return status.error();
  ring.write();
  auto written = exchange.round({false, {plan.from}}, ring.written());
  if (!written) return written.error();
  ring.compare((*written)[plan.from]);
  return {};
}

/// Why no writes are made, or empty.
std::string no_pairs_reason(const CheckOptions& options) {
  if (!options.sysfs_root.empty()) return "the devices come from --sysfs-root";
  return options.no_verbs ? "--no-verbs" : "";
}

/// Runs all rings; returns this node's results as lines. Nodes without ports take part, so that the others need not
/// know.
Result<std::string> write_to_neighbours(NodeExchange& exchange, const StepContext& context, const CheckOptions& options,
                                        const fabric::NodeFacts& node, const fabric::CheckRequest& request) {
  std::string lines;
  for (const std::uint32_t shift : shifts_of(context.own.nodes, options.pairs || options.bench)) {
    if (context.own.node == 0 && options.verbose) {
      std::fprintf(stderr, "aml-dist: every node N writes to node N+%u\n", shift);
    }
    fabric::RingPlan plan = fabric::ring_plan(context.own.node, context.own.nodes, shift);
    plan.measure = options.bandwidth || options.bench;
    plan.timeout = std::chrono::seconds(options.timeout_s);
    const auto ring = fabric::RingTest::open(node, request, plan);
    if (ring == nullptr) return Error{Errc::unavailable, "this build has no verbs"};
    if (auto status = run_ring(exchange, *ring, plan); !status) return status.error();
    for (const PairResult& each : ring->results()) lines += to_line(each);
  }
  return lines;
}

/// Node 0's view of all nodes, from their texts.
Result<StepReport> assemble(const std::map<std::uint32_t, std::string>& texts, PairResults pairs,
                            const fabric::CheckRequest& request) {
  StepReport out;
  for (const auto& [index, text] : texts) {
    const auto mark = text.find('\f');
    auto summary = fabric::summary_from_text(std::string_view(text).substr(0, mark));
    if (!summary) return summary.error();
    out.nodes.push_back(std::move(*summary));
    if (mark == std::string::npos) continue;
    auto results = fabric::pairs_from_lines(std::string_view(text).substr(mark + 1));
    if (!results) return results.error();
    pairs.pairs.insert(pairs.pairs.end(), results->begin(), results->end());
  }
  out.report = verify_job(out.nodes, pairs, request.policy);
  out.report.unknown_fails = request.unknown_fails && request.policy == launch::RdmaPolicy::require;
  out.pairs = std::move(pairs.pairs);
  return out;
}

/// The bandwidth that the SKU reaches, in Gb/s; 0: not known.
double floor_of(const fabric::CheckRequest& request) {
  return request.sku && request.sku->bandwidth ? static_cast<double>(*request.sku->bandwidth) : 0;
}

/// Puts what the record says of the slow parts before the measurements.
void add_record(const std::vector<std::string>& hosts, fabric::SpeedChecks& speed, const std::string& record,
                const std::string& own_step) {
  std::vector<std::string> slow;
  slow.reserve(speed.slow.size());
  for (const fabric::SlowPart& each : speed.slow) slow.push_back(fabric::printable(name_of(hosts, each), 200));
  const std::string told = record_slow(record, slow, own_step);
  if (!told.empty()) speed.bandwidth.evidence = concat({told, "; ", speed.bandwidth.evidence});
}

void add_speed(StepReport& step, double floor_gbps, const std::string& record, const std::string& own_step) {
  std::vector<std::string> hosts;
  hosts.reserve(step.nodes.size());
  for (const fabric::NodeSummary& node : step.nodes) hosts.push_back(node.host);
  fabric::SpeedChecks speed = fabric::judge_speed(hosts, step.pairs, floor_gbps);
  fabric::GpudirectCheck gpus = fabric::judge_gpudirect(hosts, step.pairs, floor_gbps);
  add_slow(speed.slow, gpus.slow);
  if (!record.empty()) add_record(hosts, speed, record, own_step);
  step.report.checks.push_back(std::move(speed.bandwidth));
  step.report.checks.push_back(std::move(speed.latency));
  step.report.checks.push_back(std::move(gpus.check));
  step.slow = std::move(speed.slow);
}

/// 90 % of the slowest judged port's rate.
double least_bandwidth(const fabric::NodeFacts& node, const fabric::CheckRequest& request) {
  double least = 0;
  for (const fabric::JudgedPort& each : judged_ports(node, request)) {
    const auto rate = each.port->rate.present() ? fabric::parse_rate(each.port->rate.text) : std::nullopt;
    if (rate && (least == 0 || rate->gbps < least)) least = rate->gbps;
  }
  constexpr double share = 0.9;
  return least * share;
}

}  // namespace

Result<std::optional<StepContext>> read_step_context(const EnvironmentReader& environment, std::uint32_t port) {
  const auto job = number(environment, "SLURM_JOB_ID", 0xffffffff);
  const auto step = number(environment, "SLURM_STEP_ID", 0xffffffff);
  const auto nodes = number(environment, "SLURM_STEP_NUM_NODES", most_nodes);
  const auto node = number(environment, "SLURM_NODEID", most_nodes);
  const auto local = number(environment, "SLURM_LOCALID", most_nodes);
  if (!job || !step || !nodes || !node || !local || *nodes < 2) return std::optional<StepContext>();
  const auto hosts = Hostlist::parse(environment("SLURM_STEP_NODELIST").value_or(""));
  if (!hosts) return hosts.error();
  const auto names = hosts->expand();
  if (names.size() != *nodes || *node >= *nodes) {
    return Error{Errc::invalid_argument, "Slurm's variables contradict each other about the nodes of this step"};
  }
  StepContext context;
  context.own.host = names.front();
  context.own.port = port != 0 ? static_cast<std::uint16_t>(port)
                               : own_step_port(environment, *job, *step, launch::PortPurpose::fabric_check);
  context.own.step = concat({std::to_string(*job), ".", std::to_string(*step)});
  context.own.node = *node;
  context.own.nodes = *nodes;
  const auto credentials = world::credentials_of_environment(environment);
  if (!credentials) return credentials.error();
  context.own.credentials = *credentials;
  context.takes_part = *local == 0;
  return std::optional(context);
}

void add_own_speed(const CheckOptions& options, const fabric::NodeFacts& node, const fabric::CheckRequest& request,
                   fabric::Report& report) {
  std::vector<PairResult> pairs;
  const fabric::RingPlan plan{0, 0, 0, true, std::chrono::seconds(options.timeout_s)};
  const auto ring = no_pairs_reason(options).empty() ? fabric::RingTest::open(node, request, plan) : nullptr;
  if (ring != nullptr) {
    const std::string own = ring->endpoints();
    ring->connect(own, own);
    ring->write();
    ring->compare(ring->written());
    pairs = ring->results();
  }
  std::vector<fabric::Finding> failed;
  for (const PairResult& each : pairs) {
    if (each.problem.empty()) continue;
    failed.push_back({fabric::Verdict::fail,
                      concat({each.device, " -> itself: ", fabric::printable(each.problem, 200)}),
                      "see the port's other checks"});
  }
  if (!failed.empty()) report.checks.push_back(join_findings("ib.pair", failed, ""));
  fabric::SpeedChecks speed = fabric::judge_speed({node.host}, pairs, floor_of(request));
  report.checks.push_back(std::move(speed.bandwidth));
  report.checks.push_back(std::move(speed.latency));
  report.checks.push_back(fabric::judge_gpudirect({node.host}, pairs, floor_of(request)).check);
}

Result<StepOutcome> verify_step(const StepContext& context, const CheckOptions& options, const fabric::NodeFacts& node,
                                const fabric::CheckRequest& request, const fabric::NodeSummary& own) {
  const auto patience = std::chrono::seconds(2 * options.timeout_s);
  std::unique_ptr<NodeExchangeServer> host;
  if (context.own.node == 0) {
    auto opened = NodeExchangeServer::open(context.own, patience);
    if (!opened) return opened.error();
    host = std::move(*opened);
  }
  auto exchange = NodeExchange::join(context.own, patience);
  if (!exchange) return exchange.error();
  PairResults pairs;
  pairs.reason = no_pairs_reason(options);
  if (options.bandwidth) pairs.least_gbps = least_bandwidth(node, request);
  std::string text = to_text(own);
  if (pairs.reason.empty()) {
    const auto lines = write_to_neighbours(*exchange, context, options, node, request);
    if (!lines) return lines.error();
    text += "\f" + *lines;
  }
  auto said = exchange->round({context.own.node == 0, {}}, text);
  if (!said) return said.error();
  StepOutcome out;
  if (context.own.node == 0) {
    auto whole = assemble(*said, std::move(pairs), request);
    if (!whole) return whole.error();
    out.whole = std::move(*whole);
    if (options.bench) add_speed(*out.whole, floor_of(request), options.record, context.own.step);
    out.verdict = out.whole->report.verdict();
  }
  const auto verdict = exchange->round({false, {0}}, to_string(out.verdict));
  if (!verdict) return verdict.error();
  out.verdict = fabric::verdict_from_name(verdict->at(0)).value_or(fabric::Verdict::fail);
  return out;
}

}  // namespace amldist::tools
