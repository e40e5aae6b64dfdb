// `aml-dist ray` on node 0: the head of the cluster, and the driver.
#pragma once

#include "aml_dist/ray/arguments.hpp"
#include "aml_dist/ray/place.hpp"

namespace amldist::ray {

/// Starts the head, waits for all nodes, runs the driver once and ends everything with it. Returns the driver's
/// status as a shell says it, or that of a failure of ours.
[[nodiscard]] int run_head(const Place& place, const Options& options);

}  // namespace amldist::ray
