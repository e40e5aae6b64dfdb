// `aml-dist ray` on every node but the head's.
#pragma once

#include "aml_dist/ray/arguments.hpp"
#include "aml_dist/ray/place.hpp"

namespace amldist::ray {

/// Joins the head's cluster, and stays until the head says that it is over. Returns the exit status.
[[nodiscard]] int run_worker(const Place& place, const Options& options);

}  // namespace amldist::ray
