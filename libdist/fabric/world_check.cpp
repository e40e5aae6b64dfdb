#include "fabric/world_check.hpp"

#include <algorithm>
#include <memory>

#include "base/text/text.hpp"
#include "fabric/between_nodes/job_checks.hpp"
#include "fabric/between_nodes/ring_test.hpp"

namespace amldist::fabric {
namespace {

using text::concat;

constexpr char part_mark = '\f';

/// What a node's leader uses; empty on other ranks.
struct OwnPart {
  NodeFacts node;
  NodeSummary summary;
  std::unique_ptr<RingTest> ring;
};

/// What every rank knows after the first exchange, by node.
struct Gathered {
  std::vector<NodeSummary> summaries;
  std::vector<std::string> endpoints;
};

/// A node without ports or verbs has no ring; its neighbours then report the missing end.
OwnPart read_own_part(const WorldPlace& place, const Result<CheckRequest>& request, const Roots& roots,
                      const RingPlan& plan) {
  OwnPart own;
  if (request) {
    own.node = read_node(roots);
    own.summary = summarise(own.node, *request, verify_node(own.node, *request, Evidence()));
    own.ring = RingTest::open(own.node, *request, plan);
  } else {
    own.summary.checks.push_back({"ib.policy", Verdict::fail, request.error().message, "correct rdma_sku="});
  }
  own.summary.host = place.host;
  return own;
}

/// Keeps the texts of the leaders; other ranks send an empty text.
Result<std::vector<std::string>> texts_of_nodes(const Exchange& exchange, const std::string& own, std::uint32_t nodes) {
  auto texts = exchange(own);
  if (!texts) return texts.error();
  std::erase(*texts, std::string());
  if (texts->size() == nodes) return texts;
  return Error{Errc::mismatch, concat({std::to_string(texts->size()), " of ", text::count(nodes, "node"),
                                       " take part in the verification of the fabric: AMLDIST_RDMA must be the same "
                                       "on all ranks"})};
}

Result<Gathered> gather_summaries(const Exchange& exchange, const WorldPlace& place, const OwnPart& own) {
  const std::string text =
      place.leads ? concat({to_text(own.summary), "\f", own.ring ? own.ring->endpoints() : ""}) : "";
  const auto texts = texts_of_nodes(exchange, text, place.nodes);
  if (!texts) return texts.error();
  Gathered out;
  for (const std::string& each : *texts) {
    const auto mark = each.find(part_mark);
    auto summary = summary_from_text(std::string_view(each).substr(0, mark));
    if (!summary || mark == std::string::npos) {
      return Error{Errc::mismatch,
                   "a rank's summary of its fabric is malformed: do all ranks use the same release of aml-dist?"};
    }
    out.summaries.push_back(std::move(*summary));
    out.endpoints.push_back(each.substr(mark + 1));
  }
  return out;
}

/// Writes to the right neighbour, reads from the left, and gathers the results of all nodes.
Result<PairResults> run_ring(const Exchange& exchange, const WorldPlace& place, const OwnPart& own,
                             const RingPlan& plan, const Gathered& gathered) {
  const std::string present = place.leads ? "." : "";
  if (own.ring) own.ring->connect(gathered.endpoints[plan.from], gathered.endpoints[plan.to]);
  if (auto status = texts_of_nodes(exchange, present, place.nodes); !status) return status.error();
  if (own.ring) own.ring->write();
  if (auto status = texts_of_nodes(exchange, present, place.nodes); !status) return status.error();
  std::string lines = place.leads ? "\n" : "";
  if (own.ring) {
    own.ring->compare("");
    for (const PairResult& each : own.ring->results()) lines += to_line(each);
  }
  const auto texts = texts_of_nodes(exchange, lines, place.nodes);
  if (!texts) return texts.error();
  PairResults out;
  for (const std::string& each : *texts) {
    const auto results = pairs_from_lines(each);
    if (!results) return Error{Errc::mismatch, "a rank's results between nodes are malformed"};
    out.pairs.insert(out.pairs.end(), results->begin(), results->end());
  }
  if (out.pairs.empty()) out.reason = "no node can write: no ports, or built without libibverbs' headers";
  return out;
}

std::string sentence(const Check& check) {
  return concat({check.id, ": ", check.evidence, check.remedy.empty() ? "" : ": ", check.remedy});
}

/// Whether a node reached this verdict on its own.
bool is_of_a_node(const std::vector<NodeSummary>& nodes, const Check& check) {
  return std::ranges::any_of(nodes, [&check](const NodeSummary& node) {
    return std::ranges::any_of(
        node.checks, [&check](const Check& own) { return own.id == check.id && own.verdict == check.verdict; });
  });
}

/// The most useful failed check: one that a node fails on its own, before the failures between nodes that follow from
/// it.
std::string failure_of(const Report& report, const std::vector<NodeSummary>& nodes) {
  const Check* found = nullptr;
  for (const Check& check : report.checks) {
    if (check.verdict != Verdict::fail) continue;
    if (found == nullptr || (!is_of_a_node(nodes, *found) && is_of_a_node(nodes, check))) found = &check;
  }
  if (found != nullptr) return sentence(*found);
  return report.verified ? "" : "ib.sysfs: no node has an InfiniBand or RoCE port";
}

}  // namespace

Result<WorldReport> verify_world(const WorldPlace& place, const Result<CheckRequest>& request, const Roots& roots,
                                 const Exchange& exchange, std::chrono::milliseconds timeout) {
  RingPlan plan = ring_plan(place.node, place.nodes, 1);
  plan.timeout = timeout;
  OwnPart own;
  if (place.leads) own = read_own_part(place, request, roots, plan);
  auto gathered = gather_summaries(exchange, place, own);
  if (!gathered) return gathered.error();
  const auto pairs = run_ring(exchange, place, own, plan, *gathered);
  if (!pairs) return pairs.error();
  WorldReport out;
  out.report = verify_job(gathered->summaries, *pairs, request ? request->policy : launch::RdmaPolicy::require);
  for (const Check& check : out.report.checks) {
    // A node's own warnings were printed before the nodes exchanged anything; they are not repeated.
    const bool is_new = check.verdict == Verdict::warn && !is_of_a_node(gathered->summaries, check);
    if (is_new) out.warnings.push_back(sentence(check));
  }
  out.failure = failure_of(out.report, gathered->summaries);
  return out;
}

}  // namespace amldist::fabric
