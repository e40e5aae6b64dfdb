// Values by which the nodes of a step are compared at its launch (versions, settings, NVLink domain): each node's
// helper posts a list of settings as a notice for srun (step/messages/text_exchange.hpp), and srun compares them before
// the votes are counted. An srun of an older release keeps the notice and compares nothing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/result.hpp"
#include "fabric/between_nodes/job_checks.hpp"
#include "launch/option/spec.hpp"

namespace amldist::fabric {

/// The number of the notices with settings: beyond the rounds of any writes between nodes.
inline constexpr std::uint32_t settings_round = 99'999;
/// The number of the notices with which a node says that its tasks have come (NodePresence). They can be read once all
/// nodes have posted theirs.
inline constexpr std::uint32_t presence_round = 99'998;

/// "require 4"
struct NodePresence {
  launch::RdmaPolicy policy = launch::RdmaPolicy::off;
  std::uint32_t nodes = 1;  ///< of the step

  [[nodiscard]] std::string to_string() const;
  /// nullopt for a text that to_string() cannot have written.
  [[nodiscard]] static std::optional<NodePresence> parse(std::string_view text);
};

/// The settings of one node.
struct NodeSettings {
  std::uint32_t nodes = 1;  ///< of the step
  launch::RdmaPolicy policy = launch::RdmaPolicy::off;
  NodeSummary node;  ///< host and traits only
};

/// Without ';'. What the votes themselves compare (the partition keys) and what may differ is left out.
[[nodiscard]] std::string to_text(const NodeSettings& sheet);
/// Errors: invalid_argument.
[[nodiscard]] Result<NodeSettings> node_settings_from_text(std::string_view text);

/// srun's side: the settings of all nodes.
class SettingsComparison {
 public:
  /// A node's text; a second one of the same node changes nothing. Malformed texts are ignored.
  void take(std::uint32_t node, std::string_view text);
  /// The differences, returned once, when the settings of all nodes are there.
  [[nodiscard]] std::vector<Difference> differences();
  [[nodiscard]] launch::RdmaPolicy policy() const noexcept { return policy_; }

 private:
  std::map<std::uint32_t, NodeSummary> nodes_;
  std::uint32_t expected_ = 0;
  launch::RdmaPolicy policy_ = launch::RdmaPolicy::off;
  bool compared_ = false;
};

}  // namespace amldist::fabric
