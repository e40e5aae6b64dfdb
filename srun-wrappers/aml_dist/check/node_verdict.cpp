#include "aml_dist/check/node_verdict.hpp"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "shared/json.hpp"

namespace amldist::tools {
namespace {

using fabric::Check;
using fabric::Verdict;
using nlohmann::ordered_json;

/// Health Validation has no word for what was skipped: it tells and does not count.
std::string_view severity_word(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass:
      return "PASS";
    case Verdict::skip:
      return "INFO";
    case Verdict::warn:
      return "WARNING";
    case Verdict::fail:
      return "CRITICAL";
    case Verdict::unknown:
      break;
  }
  return "UNKNOWN";
}

/// Health Validation's hardware domains.
std::string_view domain_of(std::string_view id) {
  if (id == "gpu.nvlink" || id == "gpu.fabric" || id == "gpu.imex") return "nvlink";
  if (id == "gpu.xid") return "xid";
  if (id.starts_with("gpu.")) return "gpu";
  return id.starts_with("ib.") || id.starts_with("roce.") ? "infiniband" : "node";
}

/// The categories that have other checks than passed ones.
ordered_json affected_components(const std::string& host, const std::vector<Check>& checks) {
  std::map<std::string_view, fabric::Report> by_category;
  for (const Check& check : checks) {
    if (check.verdict != Verdict::pass && check.verdict != Verdict::skip)
      by_category[domain_of(check.id)].checks.push_back(check);
  }
  auto out = ordered_json::array();
  for (const auto& [category, report] : by_category) {
    auto ids = ordered_json::array();
    for (const Check& check : report.checks) ids.push_back(check.id);
    out.push_back({{"category", category},
                   {"check_ids", std::move(ids)},
                   {"entities", ordered_json::array({host})},
                   {"max_severity", severity_word(report.verdict())}});
  }
  return out;
}

ordered_json node_verdict_of(const std::string& host, const fabric::Report& report) {
  auto checks = ordered_json::array();
  for (const Check& check : report.checks) {
    ordered_json each = {{"check_id", check.id},
                         {"category", domain_of(check.id)},
                         {"severity", severity_word(check.verdict)},
                         {"message", check.evidence}};
    if (!check.remedy.empty()) each["recommended_action"] = check.remedy;
    checks.push_back(std::move(each));
  }
  return {{"node", host},
          {"overall_severity", severity_word(report.verdict())},
          {"checks", std::move(checks)},
          {"affected_components", affected_components(host, report.checks)}};
}

}  // namespace

std::string to_nodeverdict(const NodeVerification& node) {
  return commands::ascii_json(node_verdict_of(node.host, node.report));
}

std::string to_nodeverdict(const StepReport& step) {
  auto out = ordered_json::array();
  for (const fabric::NodeSummary& node : step.nodes)
    out.push_back(
        node_verdict_of(node.host, {step.report.policy, node.checks, node.verified, step.report.unknown_fails}));
  return commands::ascii_json(out);
}

}  // namespace amldist::tools
