// What to measure, and the results: values that all ways of running share.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "aml_dist/bench/bench.hpp"
#include "aml_dist/bench/programs/core.h"
#include "base/text/result.hpp"

namespace amldist::tools {

/// A checked set of options.
struct BenchPlan {
  std::vector<bench_request> requests;  ///< one for each size, without iterations
  unsigned rounds = 5;
};

/// One line of the table.
struct BenchRow {
  std::string peer;  ///< "amldist" for ourselves
  bench_request request{};
  int size = 1;  ///< ranks
  double microseconds = 0;
  std::uint64_t wrong = 0;
  std::string trust = {};  ///< of the step's world: "authenticated", "unproven" or "open"; empty: not in a step

  [[nodiscard]] double algorithm_bandwidth() const;  ///< GB/s
  [[nodiscard]] double bus_bandwidth() const;        ///< GB/s, by the factors of nccl-tests; 0 for one rank
};

/// Checks names and numbers. `size`: ranks, by which arrays are divided.
[[nodiscard]] Result<BenchPlan> make_plan(const BenchOptions& options, int size);

/// "4", "64K", "1.5M", "2G" in powers of 1024.
[[nodiscard]] Result<std::uint64_t> parse_bytes(const std::string& text);

/// Measures one request with all ranks of one library: the time of the slowest rank, the sum of wrong elements.
using Measure = std::function<Result<bench_result>(const bench_request&)>;

/// A library that takes part.
struct MeasuredLibrary {
  std::string name;
  int size = 1;
  Measure measure;
};

/// Progress: the row's request, how many are done and how many there are.
using Progress = std::function<void(const bench_request&, std::size_t done, std::size_t all)>;

/// Measures all libraries in turn, round by round, so that a slow minute of the machine slows all of them; a row's time
/// is the median over the rounds. Unsupported requests give no row.
[[nodiscard]] Result<std::vector<BenchRow>> run_plan(const BenchPlan& plan,
                                                     const std::vector<MeasuredLibrary>& libraries,
                                                     const Progress& progress);

}  // namespace amldist::tools
