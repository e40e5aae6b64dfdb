// `aml-dist check` on the nodes of a job, before they are used.
#pragma once

#include <chrono>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace amldist::keep {

enum class HealthCheck { off, quick, bench };

struct NodeHealth {
  std::map<std::string, std::string> sick = {};  ///< node, and the check that failed with its evidence
  std::vector<std::string> silent = {};          ///< not answered in time: not sick for that
};

/// Runs the check on all nodes at once and waits until the slowest has answered, or half a minute (bench: five).
/// `folder`: for its output.
[[nodiscard]] NodeHealth check_nodes(std::span<const std::string> nodes, HealthCheck kind, const std::string& folder);

/// Reads the labelled output of the nodes' checks: "0: node node1", "0: {", "0:   \"schema\": 2,", ...
[[nodiscard]] NodeHealth parse_health(std::string_view output, std::span<const std::string> nodes);

}  // namespace amldist::keep
