// The fields of a report as programs read it, in one place. The C interface writes them without a library
// (report_json), aml-dist check with the JSON library of the other tools.
//
// visit_fields() calls a visitor with the name and the value of each field, in the order in which they are written. A
// value is a std::string_view, a std::optional<std::string> or a std::optional<std::uint32_t> (absent: null), or a
// vector of checks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/facts/selection.hpp"
#include "fabric/report/verdict.hpp"

namespace amldist::fabric {

/// The version of the fields: docs/check.schema.json. 2: the verdict `unknown`, and this number.
inline constexpr std::uint32_t report_schema = 2;

template <typename Visitor>
void visit_fields(const Check& check, Visitor& visit) {
  visit("id", std::string_view(check.id));
  visit("verdict", to_string(check.verdict));
  visit("evidence", std::string_view(check.evidence));
  visit("remedy", std::string_view(check.remedy));
}

/// A node's report and its subject.
struct NodeReport {
  const std::string& host;
  const Report& report;
  const FabricSettings& settings;
};

template <typename Visitor>
void visit_fields(const NodeReport& node, Visitor& visit) {
  const std::vector<PortName>& ports = node.settings.ports;
  visit("schema", std::optional(report_schema));
  visit("node", std::string_view(node.host));
  visit("policy", to_string(node.report.policy));
  visit("verdict", to_string(node.report.verdict()));
  visit("checks", node.report.checks);
  visit("nccl_ib_hca", ports.empty() ? std::optional<std::string>() : exact_selection(ports));
  visit("nccl_ib_gid_index", node.settings.gid_index);
}

}  // namespace amldist::fabric
