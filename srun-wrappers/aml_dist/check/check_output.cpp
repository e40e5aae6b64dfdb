#include "aml_dist/check/check_output.hpp"

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/text/text.hpp"
#include "fabric/report/report_fields.hpp"
#include "shared/json.hpp"

namespace amldist::tools {
namespace {

using fabric::Verdict;
using nlohmann::ordered_json;
using text::concat;

constexpr std::size_t id_width = 13;

std::string_view colour_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass:
      return "\033[32m";
    case Verdict::warn:
      return "\033[33m";
    case Verdict::fail:
      return "\033[1;31m";
    case Verdict::unknown:
      return "\033[35m";
    case Verdict::skip:
      break;
  }
  return "\033[2m";
}

std::string word_for(Verdict verdict, bool colour) {
  const std::string word = concat({to_string(verdict)});
  return colour ? concat({colour_of(verdict), word, "\033[0m"}) : word;
}

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.append(width - text.size(), ' ');
  return text;
}

/// A line for each check, and its remedy.
std::string lines_of(const std::vector<fabric::Check>& checks, bool colour, bool quiet) {
  std::string out;
  for (const fabric::Check& check : checks) {
    const bool well = check.verdict == Verdict::pass || check.verdict == Verdict::skip;
    if (quiet && well) continue;
    out += concat({"  ", word_for(check.verdict, colour), "  ", padded(check.id, id_width), " ", check.evidence, "\n"});
    if (!well && !check.remedy.empty()) out += concat({"        ", padded("", id_width), " -> ", check.remedy, "\n"});
  }
  return out;
}

template <typename Described>
ordered_json object_of(const Described& described);

ordered_json array_of(const std::vector<fabric::Check>& checks) {
  auto out = ordered_json::array();
  for (const fabric::Check& check : checks) out.push_back(object_of(check));
  return out;
}

/// Copies the fields of a report into an object of the JSON library.
struct ObjectWriter {
  ordered_json object = ordered_json::object();

  void operator()(std::string_view name, std::string_view value) { object[std::string(name)] = value; }
  void operator()(std::string_view name, const std::vector<fabric::Check>& checks) {
    object[std::string(name)] = array_of(checks);
  }
  template <typename T>
  void operator()(std::string_view name, const std::optional<T>& value) {
    object[std::string(name)] = value ? ordered_json(*value) : ordered_json(nullptr);
  }
};

template <typename Described>
ordered_json object_of(const Described& described) {
  ObjectWriter writer;
  visit_fields(described, writer);
  return std::move(writer.object);
}

/// A node's own verdict, from its checks.
fabric::Report report_of(const fabric::NodeSummary& node, const fabric::Report& whole) {
  const launch::RdmaPolicy policy = whole.policy;
  const bool unknown_fails = whole.unknown_fails;
  return {policy, node.checks, node.verified, unknown_fails};
}

}  // namespace

std::string to_table(const NodeVerification& node, bool colour, bool quiet) {
  std::string out = concat(
      {node.host, ": ", word_for(node.report.verdict(), colour), " (policy ", to_string(node.report.policy), ")\n"});
  return out + lines_of(node.report.checks, colour, quiet);
}

std::string to_json(const NodeVerification& node) {
  return commands::ascii_json(object_of(fabric::NodeReport{node.host, node.report, node.settings}));
}

std::string to_table(const StepReport& step, bool colour, bool quiet) {
  std::string out =
      concat({text::count(step.nodes.size(), "node"), ": ", word_for(step.report.verdict(), colour), " (policy ",
              to_string(step.report.policy), ")\n", lines_of(step.report.checks, colour, quiet)});
  for (const fabric::NodeSummary& node : step.nodes) {
    const Verdict verdict = report_of(node, step.report).verdict();
    if (quiet && verdict == Verdict::pass) continue;
    out += concat({"  ", word_for(verdict, colour), "  ", node.host, "\n"});
  }
  return out;
}

namespace {

std::string host_at(const StepReport& step, std::uint32_t node) {
  return node < step.nodes.size() ? step.nodes[node].host : std::to_string(node);
}

/// The settings for NCCL on a node.
ordered_json setting(const fabric::NodeSummary& node, std::string_view name) {
  const auto found = node.traits.find(name);
  if (found == node.traits.end()) return nullptr;
  const auto number = name == "nccl_ib_gid_index" ? text::to_number(found->second, 65535) : std::nullopt;
  return number ? ordered_json(*number) : ordered_json(found->second);
}

/// The value that all nodes have; null if they differ.
ordered_json common_setting(const StepReport& step, std::string_view name) {
  ordered_json common;
  for (std::size_t i = 0; i < step.nodes.size(); ++i) {
    auto own = setting(step.nodes[i], name);
    if (i > 0 && own != common) return nullptr;
    common = std::move(own);
  }
  return common;
}

/// The measurement; null if there is none.
ordered_json array_of(const StepReport& step) {
  auto out = ordered_json::array();
  for (const fabric::PairResult& each : step.pairs) {
    if (each.gbps <= 0) continue;
    out.push_back({{"from", host_at(step, each.from)},
                   {"to", host_at(step, each.to)},
                   {"port", each.device},
                   {"gbps", each.gbps},
                   {"latency_us", each.latency_us}});
  }
  return out.empty() ? ordered_json(nullptr) : out;
}

}  // namespace

std::string nodes_to_exclude(const StepReport& step) {
  std::vector<fabric::SlowPart> parts = step.slow;
  for (std::uint32_t node = 0; node < step.nodes.size(); ++node) {
    const bool sick = report_of(step.nodes[node], step.report).verdict() == Verdict::fail;
    if (sick) parts.push_back({fabric::SlowPart::Kind::node, node, 0, ""});
  }
  std::vector<fabric::PairResult> broken;
  std::ranges::copy_if(step.pairs, std::back_inserter(broken),
                       [](const fabric::PairResult& each) { return !each.problem.empty(); });
  const auto more = locate(step.pairs, broken);
  parts.insert(parts.end(), more.begin(), more.end());
  std::vector<std::string> hosts;
  hosts.reserve(step.nodes.size());
  for (const fabric::NodeSummary& node : step.nodes) hosts.push_back(node.host);
  return exclusion(hosts, parts);
}

std::string to_json(const StepReport& step) {
  constexpr std::string_view hca = "nccl_ib_hca";
  constexpr std::string_view gid = "nccl_ib_gid_index";
  auto nodes = ordered_json::array();
  for (const fabric::NodeSummary& node : step.nodes) {
    nodes.push_back({{"node", node.host},
                     {"verdict", to_string(report_of(node, step.report).verdict())},
                     {"checks", array_of(node.checks)},
                     {hca, setting(node, hca)},
                     {gid, setting(node, gid)}});
  }
  return commands::ascii_json({{"schema", fabric::report_schema},
                               {"policy", to_string(step.report.policy)},
                               {"verdict", to_string(step.report.verdict())},
                               {"checks", array_of(step.report.checks)},
                               {hca, common_setting(step, hca)},
                               {gid, common_setting(step, gid)},
                               {"measurements", array_of(step)},
                               {"nodes", std::move(nodes)}});
}

}  // namespace amldist::tools
