#include "fabric/between_nodes/launch_pairs.hpp"

#include <algorithm>
#include <array>

#include "base/text/text.hpp"

namespace amldist::fabric {
namespace {

using text::concat;

std::string name_of(const NodeNames& names, std::uint32_t node) {
  const auto found = names.find(node);
  return found == names.end() ? concat({"node ", std::to_string(node)}) : found->second;
}

/// The three exchanges of one round, the first of which has number `first`. Returns an empty text if they took place.
std::optional<PeerTexts> write_in_round(RingTest& ring, const RingPlan& plan, std::uint32_t first,
                                        const PeerExchange& exchange) {
  const std::array both = {plan.to, plan.from};
  const std::size_t different = plan.to == plan.from ? 1 : 2;
  PeerTexts ends = exchange(first, ring.endpoints(), std::span(both).first(different));
  if (ends.is_over || !ends.problem.empty()) return ends;
  ring.connect(ends.texts[plan.from], ends.texts[plan.to]);
  PeerTexts connected = exchange(first + 1, "connected", std::array{plan.to});
  if (connected.is_over || !connected.problem.empty()) return connected;
  ring.write();
  PeerTexts written = exchange(first + 2, ring.written(), std::array{plan.from});
  if (written.is_over || !written.problem.empty()) return written;
  ring.compare(written.texts[plan.from]);
  return std::nullopt;
}

std::vector<Finding> failures_of(const RingTest& ring, const NodeNames& names) {
  std::vector<Finding> findings;
  for (const PairResult& each : ring.results()) {
    if (each.problem.empty()) continue;
    findings.push_back({Verdict::fail,
                        concat({name_of(names, each.from), " -> ", name_of(names, each.to), " over ", each.device, ": ",
                                each.problem}),
                        "check cable and switch between the two, and their GIDs and P_Keys; 'srun aml-dist check "
                        "--pairs' shows all such pairs"});
  }
  return findings;
}

}  // namespace

NodeNames node_names_from(std::string_view text) {
  NodeNames out;
  for (const std::string_view each : text::split(text, ',')) {
    const auto equals = each.find('=');
    const auto number = text::to_number(each.substr(0, equals), 0xffffffff);
    if (equals == std::string_view::npos || !number) continue;
    out[static_cast<std::uint32_t>(*number)] = printable(each.substr(equals + 1), 64);
  }
  return out;
}

std::string to_text(const NodeNames& names) {
  std::string out;
  for (const auto& [number, name] : names) {
    out += concat({out.empty() ? "" : ",", std::to_string(number), "=", name});
  }
  return out;
}

RingPlan plan_of(const PairRound& round, std::uint32_t node, std::chrono::milliseconds timeout) {
  return {node, round.to.value_or(node), round.from.value_or(node), false, timeout};
}

std::optional<Check> run_launch_pairs(RingTest& ring, const RingPlan& first, const std::vector<PairRound>& rounds,
                                      const NodeNames& names, const PeerExchange& exchange) {
  constexpr std::uint32_t exchanges_of_round = 3;
  std::string met;
  for (std::uint32_t i = 0; i < rounds.size(); ++i) {
    if (!rounds[i].to || !rounds[i].from) continue;
    const RingPlan plan = plan_of(rounds[i], first.node, first.timeout);
    if (!met.empty() || plan.to != first.to) ring.restart(plan);
    if (const auto broken = write_in_round(ring, plan, i * exchanges_of_round, exchange)) {
      if (broken->is_over) return std::nullopt;
      return Check{"ib.pair", Verdict::fail, broken->problem, "see why the other node's tasks do not start"};
    }
    if (const auto failures = failures_of(ring, names); !failures.empty())
      return join_findings("ib.pair", failures, "");
    met += concat({met.empty() ? "" : ", ", name_of(names, plan.to)});
  }
  if (ring.results().empty()) return Check{"ib.pair", Verdict::skip, "no port to write over", ""};
  return Check{"ib.pair", Verdict::pass,
               concat({text::count(ring.results().size(), "port"), " write to ", printable(met, 100)}), ""};
}

}  // namespace amldist::fabric
