// What the ports and GPUs of a node have in common, and what must be unique. One mechanism: whatever differs from its
// siblings is named with both values, as a finding of the check that the attribute belongs to. Pure.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/checks/check_request.hpp"
#include "fabric/facts/node_facts.hpp"
#include "fabric/report/verdict.hpp"

namespace amldist::fabric {

/// A finding, and the check that it belongs to.
struct Difference {
  std::string check;
  Finding finding;
};

/// Ports are siblings if their cards are of one model and their networks of one kind (for P_Keys also of one subnet),
/// GPUs if they are of one model. `severity` is that of a difference from more than half of the siblings, two at least;
/// where no value has such a majority, or only two differ, it is a warning. What a port does not tell is not compared.
[[nodiscard]] std::vector<Difference> differences_between_siblings(const NodeFacts& node, const CheckRequest& request);

/// The same attributes of a whole node, by which nodes are compared: "pcie", "gid_kinds", ... and the values of its
/// active ports, each once and sorted.
using Trait = std::pair<std::string, std::string>;
[[nodiscard]] std::vector<Trait> shared_traits(const NodeFacts& node, const CheckRequest& request);

/// An attribute as nodes are compared by it.
struct SharedAttribute {
  std::string_view check;  ///< that a difference belongs to
  std::string_view trait;
  std::string_view what;  ///< "PCIe link"
  std::string_view remedy;
};
[[nodiscard]] std::vector<SharedAttribute> shared_attributes();

/// The GUIDs, routable GIDs and LIDs ("mlx5_0:1/LID:0x5/...") of a node's active ports: no two nodes may have the same.
[[nodiscard]] std::vector<std::string> identities_of(const NodeFacts& node, const CheckRequest& request);

}  // namespace amldist::fabric
