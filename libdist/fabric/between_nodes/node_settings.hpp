// What nodes of a step are compared by at its launch (versions, settings, NVLink domain): each node's helper puts up a
// list of settings as a notice for srun (step/messages/text_exchange.hpp), and srun compares them before the votes are
// counted. An srun of an older release keeps the notice and compares nothing.
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

/// The settings of one node.
struct NodeSettings {
  std::uint32_t nodes = 1;  ///< of the step
  launch::RdmaPolicy policy = launch::RdmaPolicy::off;
  NodeSummary node;  ///< host and traits only
};

/// Without ';'. What the votes compare themselves (the partition keys) and what may differ is left out.
[[nodiscard]] std::string to_text(const NodeSettings& sheet);
/// Errors: invalid_argument.
[[nodiscard]] Result<NodeSettings> node_settings_from_text(std::string_view text);

/// srun's side: the settings of all nodes.
class SettingsComparison {
 public:
  /// A node's text; a second one of the same node changes nothing. What is malformed is ignored.
  void take(std::uint32_t node, std::string_view text);
  /// What differs, returned once, when those of all nodes are there.
  [[nodiscard]] std::vector<Difference> differences();
  [[nodiscard]] launch::RdmaPolicy policy() const noexcept { return policy_; }

 private:
  std::map<std::uint32_t, NodeSummary> nodes_;
  std::uint32_t expected_ = 0;
  launch::RdmaPolicy policy_ = launch::RdmaPolicy::off;
  bool compared_ = false;
};

}  // namespace amldist::fabric
