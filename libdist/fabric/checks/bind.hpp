// Whether what each rank of a node uses belongs together: processors, memory, GPU and port. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "fabric/facts/rank_place.hpp"

namespace amldist::fabric {

/// A sentence about a node's ranks, each with the option that helps; nullopt where all is well, or nothing is known.
/// `ranks` in the order of their local ranks.
///
///   4 of 8 ranks on node1: GPU on NUMA node 1, processors on node 0: add --cpu-bind=map_ldom:0,0,0,0,1,1,1,1
///   2 tasks on node1 use GPU 0 (ranks 0 and 1): ...
[[nodiscard]] std::optional<std::string> judge_places(std::span<const RankPlace> ranks, const DevicePlaces& devices,
                                                      const std::string& host);

/// "rank 3: processors on NUMA node 0, memory on node 0, GPU 3 on node 1"; "rank 3: not known".
[[nodiscard]] std::string describe_place(const RankPlace& place, const DevicePlaces& devices);

}  // namespace amldist::fabric
