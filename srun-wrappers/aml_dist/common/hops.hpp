// How far the hosts of a step are from each other, in the order of their ranks.
#pragma once

#include <string>

#include "base/text/result.hpp"
#include "launch/placement/network_topology.hpp"
#include "launch/placement/step_facts.hpp"

namespace amldist::tools {

/// From a file with what `scontrol show topology` printed; empty: from scontrol.
[[nodiscard]] Result<launch::NetworkTopology> read_topology(const std::string& file);

/// Lines for people: the links between neighbouring hosts as they are placed, and along the switches, each with a
/// drawing.
[[nodiscard]] std::string describe_hops(const launch::NetworkTopology& network, const launch::Placement& placement);

}  // namespace amldist::tools
