// Does twice the hardware take half the time? A training-like step (computing, and gradients that are all-reduced in
// buckets meanwhile) on 1, 2, 4, ... of the step's nodes, or of its ranks if there is one node.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "aml_dist/bench/bench.hpp"
#include "aml_dist/bench/bench_world.hpp"

namespace amldist::tools {

struct ScalingRow {
  int ranks = 1;
  int nodes = 1;
  double step_ms = 0;
  double ideal_ms = 0;  ///< the first row's time, divided by the factor of nodes

  [[nodiscard]] double efficiency() const { return step_ms > 0 ? ideal_ms / step_ms : 0; }
  [[nodiscard]] double steps_per_second() const { return step_ms > 0 ? 1000 / step_ms : 0; }
};

/// A description of the steps.
struct ScalingWork {
  std::uint64_t gradient_bytes = 0;
  double compute_ms = 0;  ///< on one rank
};

/// Collective over the world; every rank gets the rows. The work of a step is the same in all rows (strong scaling).
[[nodiscard]] Result<std::vector<ScalingRow>> measure_scaling(const World& world, const BenchOptions& options,
                                                              const std::function<void(std::string_view)>& progress);

[[nodiscard]] std::string to_table(const std::vector<ScalingRow>& rows);
[[nodiscard]] std::string to_json(const std::vector<ScalingRow>& rows);
/// Efficiency against the ideal, and throughput; `rows` is not empty.
[[nodiscard]] std::string draw_scaling(std::span<const ScalingRow> rows, const ScalingWork& work);

}  // namespace amldist::tools
