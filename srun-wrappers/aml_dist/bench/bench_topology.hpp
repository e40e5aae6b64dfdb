// How far the ranks of a step are from each other: the kernel's description of their processors, and the time of a
// message between each two of them.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "aml_dist/bench/bench_world.hpp"
#include "base/os/processor_place.hpp"

namespace amldist::tools {

struct RankPlace {
  std::string host;
  int processor = -1;
  bool is_bound = false;  ///< to one processor, by its launcher or for this measurement
  ProcessorPlace place;
};

/// Ranks by their numbers; the distance of a rank to itself is 0.
struct NodeTopology {
  std::vector<RankPlace> ranks;
  std::vector<std::vector<double>> latency_ns;     ///< of 4 bytes, one way
  std::vector<std::vector<double>> bandwidth_gbs;  ///< of 1 MiB, one way, GB/s
  std::vector<std::vector<int>> groups;            ///< ranks that are near each other, as measured; by lowest rank
  std::string provenance;                          ///< rank 0's amldist_provenance()
};

/// Collective over the world; every rank gets the result. A rank that may use several processors is bound to one of
/// them if there is one for each rank of its node. Errors: those of the library; invalid_argument for more than 256.
[[nodiscard]] Result<NodeTopology> measure_topology(const World& world,
                                                    const std::function<void(std::string_view)>& progress);

[[nodiscard]] std::string to_table(const NodeTopology& topology);
[[nodiscard]] std::string to_json(const NodeTopology& topology);

}  // namespace amldist::tools
