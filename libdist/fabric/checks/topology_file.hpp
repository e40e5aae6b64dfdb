// Where a size's GPUs and network cards should be: a topology file of NCCL, such as Azure's images and NVIDIA's systems
// have (NCCL_TOPO_FILE), named by the SKU.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/result.hpp"
#include "fabric/facts/node_facts.hpp"
#include "fabric/report/verdict.hpp"

namespace amldist::fabric {

/// A <pci> element that is a GPU or a network card.
struct PlacedFunction {
  std::string address;  ///< "0001:00:00.0", lower case
  bool gpu = false;
  std::string numa_node;             ///< of the <cpu> around it; may be empty
  std::vector<std::string> bridges;  ///< the <pci> elements around it, outermost first

  friend bool operator==(const PlacedFunction&, const PlacedFunction&) = default;
};

inline constexpr std::size_t longest_topology = 1 << 20;

/// The GPUs and network cards of a file. Other elements are skipped. Errors: invalid_argument, in a sentence: elements
/// that do not fit each other, too many or too deep ones, no GPU or no card.
[[nodiscard]] Result<std::vector<PlacedFunction>> parse_topology(std::string_view content);

/// Whether each GPU and card of the file is at its address, and the cards that the file has nearest to a GPU (below one
/// bridge, else on one NUMA node) are not on another NUMA node.
[[nodiscard]] Check check_topology(const NodeFacts& node, const std::vector<PlacedFunction>& expected);

}  // namespace amldist::fabric
