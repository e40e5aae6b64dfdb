// Measured rows as a table with the columns of nccl-tests, and as JSON.
#pragma once

#include <span>
#include <string>

#include "aml_dist/bench/bench_plan.hpp"

namespace amldist::tools {

/// With a peer, each size has a line for every library, and how many times faster than it the first one is.
[[nodiscard]] std::string to_table(std::span<const BenchRow> rows);

/// An array of objects: op, bytes, type, in_place, time_us, algbw_GBs, busbw_GBs, wrong, peer; and count, redop, ranks.
[[nodiscard]] std::string to_json(std::span<const BenchRow> rows);

/// Bus bandwidth (or the time, where there is no bandwidth) over the size, a curve for each library.
[[nodiscard]] std::string draw_bench(std::span<const BenchRow> rows);

}  // namespace amldist::tools
