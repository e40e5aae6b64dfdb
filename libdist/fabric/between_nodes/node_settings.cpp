#include "fabric/between_nodes/node_settings.hpp"

#include <algorithm>
#include <array>

#include "base/text/text.hpp"

namespace amldist::fabric {
namespace {

using text::concat;

constexpr std::size_t longest_value = 200;
constexpr std::uint32_t most_nodes_of_a_step = 1'000'000;
constexpr std::array<std::string_view, 4> not_compared_here = {"pkey", "nccl_ib_hca", "nccl_ib_gid_index",
                                                               "identities"};  // too long

/// Contains neither the notice's separator nor this text's.
std::string plain(std::string_view value) {
  std::string out = printable(value, longest_value);
  std::ranges::replace(out, ';', ',');
  return out;
}

}  // namespace

std::string NodePresence::to_string() const { return concat({launch::to_string(policy), " ", std::to_string(nodes)}); }

std::optional<NodePresence> NodePresence::parse(std::string_view text) {
  const auto words = text::split(text, ' ');
  if (words.size() != 2) return std::nullopt;
  const auto policy = launch::policy_from_name(words[0]);
  const auto nodes = text::to_number(words[1], most_nodes_of_a_step);
  if (!policy || !nodes || *nodes == 0) return std::nullopt;
  return NodePresence{*policy, static_cast<std::uint32_t>(*nodes)};
}

std::string to_text(const NodeSettings& sheet) {
  std::string out = concat({std::to_string(sheet.nodes), "\t", to_string(sheet.policy), "\t", plain(sheet.node.host)});
  for (const auto& [name, value] : sheet.node.traits) {
    if (std::ranges::find(not_compared_here, name) != not_compared_here.end()) continue;
    out += concat({"\t", plain(name), "=", plain(value)});
  }
  return out;
}

Result<NodeSettings> node_settings_from_text(std::string_view text) {
  const Error malformed{Errc::invalid_argument, "a node's settings are malformed"};
  const auto fields = text::split(text, '\t');
  if (fields.size() < 3) return malformed;
  const auto nodes = text::to_number(fields[0], most_nodes_of_a_step);
  const auto policy = launch::policy_from_name(fields[1]);
  if (!nodes || *nodes == 0 || !policy) return malformed;
  NodeSettings out{static_cast<std::uint32_t>(*nodes), *policy, {printable(fields[2], 64), false, {}, {}, {}}};
  for (std::size_t i = 3; i < fields.size(); ++i) {
    const auto equals = fields[i].find('=');
    if (equals == std::string_view::npos) return malformed;
    out.node.traits[printable(fields[i].substr(0, equals), 64)] =
        printable(fields[i].substr(equals + 1), longest_value);
  }
  return out;
}

void SettingsComparison::take(std::uint32_t node, std::string_view text) {
  auto sheet = node_settings_from_text(text);
  if (!sheet || (expected_ != 0 && sheet->nodes != expected_) || node >= sheet->nodes) return;
  expected_ = sheet->nodes;
  policy_ = sheet->policy;
  nodes_.emplace(node, std::move(sheet->node));
}

std::vector<Difference> SettingsComparison::differences() {
  if (compared_ || expected_ == 0 || nodes_.size() < expected_) return {};
  compared_ = true;
  std::vector<NodeSummary> nodes;
  nodes.reserve(nodes_.size());
  for (auto& [number, node] : nodes_) nodes.push_back(std::move(node));
  return differences_between(nodes);
}

}  // namespace amldist::fabric
