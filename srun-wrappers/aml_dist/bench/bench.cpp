#include "aml_dist/bench/bench.hpp"

#include <unistd.h>

#include <cstdio>

#include "aml_dist/bench/bench_local.hpp"
#include "aml_dist/bench/bench_output.hpp"
#include "aml_dist/bench/bench_plan.hpp"
#include "aml_dist/bench/bench_scaling.hpp"
#include "aml_dist/bench/bench_topology.hpp"
#include "aml_dist/bench/bench_world.hpp"
#include "aml_dist/common/files.hpp"
#include "base/text/text.hpp"
#include "calls/data_type.hpp"
#include "shared/exit_status.hpp"
#include "shared/terminal.hpp"

namespace amldist::tools {
namespace {

using commands::fail;
using text::concat;

/// One line on a terminal that is overwritten repeatedly; nothing if standard error is not a terminal.
class ProgressLine {
 public:
  explicit ProgressLine(bool shown) : shown_(shown && ::isatty(STDERR_FILENO) == 1) {}
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine() {
    if (shown_) std::fputs("\r\033[K", stderr);
  }
  void operator()(std::string_view what) const {
    if (shown_) std::fprintf(stderr, "\r\033[Kaml-dist: %.*s", static_cast<int>(what.size()), what.data());
  }

 private:
  bool shown_;
};

/// Fails early if the picture cannot be written, instead of after minutes of measuring.
Result<void> check_picture(const BenchOptions& options) {
  return options.svg.empty() ? Result<void>() : check_writable(options.svg);
}

/// Prints the rows first: they were measured, whatever happens to the picture.
int print_rows(const std::vector<BenchRow>& rows, const BenchOptions& options) {
  std::fputs(options.json ? to_json(rows).c_str() : to_table(rows).c_str(), stdout);
  if (!options.svg.empty()) {
    const auto written = write_file(options.svg, draw_bench(rows));
    if (!written) return fail(written.error());
  }
  std::uint64_t wrong = 0;
  for (const BenchRow& row : rows) wrong += row.wrong;
  if (wrong != 0) return fail({Errc::internal, concat({std::to_string(wrong), " elements are wrong"})});
  return commands::exit_done;
}

Result<std::vector<BenchRow>> measure(const BenchOptions& options, const std::vector<MeasuredLibrary>& libraries,
                                      bool speaks) {
  const auto plan = make_plan(options, libraries.front().size);
  if (!plan) return plan.error();
  const ProgressLine line(speaks);
  return run_plan(*plan, libraries, [&](const bench_request& request, std::size_t done, std::size_t all) {
    line(concat({bench_op_name(request.op), " of ", std::to_string(request.bytes), " bytes (", std::to_string(done + 1),
                 " of ", std::to_string(all), ")"}));
  });
}

/// Ranks that this process starts itself.
int bench_here(const BenchOptions& options) {
  if (const auto status = make_plan(options, options.ranks); !status) return fail(status.error());
  if (const auto status = check_picture(options); !status) return fail(status.error());
  std::vector<std::unique_ptr<LocalRanks>> started;
  std::vector<MeasuredLibrary> libraries;
  auto own = LocalRanks::start_own(options.ranks);
  if (!own) return fail(own.error());
  started.push_back(std::move(*own));
  for (const std::string& peer : options.peers) {
    auto ranks = LocalRanks::start_peer(peer, options.ranks);
    if (!ranks) return fail(ranks.error());
    started.push_back(std::move(*ranks));
  }
  libraries.reserve(started.size());
  for (const auto& ranks : started) libraries.push_back(ranks->library());
  const auto rows = measure(options, libraries, true);
  return rows ? print_rows(*rows, options) : fail(rows.error());
}

/// Reports an error that every rank has; only one of them prints it.
int fail_once(const Error& error, bool speaks) {
  if (speaks) return fail(error);
  return commands::exit_status_of(error.code);
}

/// Rank 0 draws; the others learn whether it can.
Result<void> check_picture(const World& world, const BenchOptions& options) {
  const Result<void> own = world.rank() == 0 ? check_picture(options) : Result<void>();
  const auto fine = world.told_by_rank_0(static_cast<bool>(own));
  if (!fine) return fine.error();
  return *fine || !own ? own : Error{Errc::unavailable, "rank 0 cannot write the picture"};
}

/// Runs as a rank of a step, or alone.
int bench_in_step(const BenchOptions& options) {
  if (!options.peers.empty()) {
    return fail({Errc::invalid_argument, "--peer needs --ranks N: other libraries are measured on one node"});
  }
  const auto world = World::join();
  if (!world) return fail(world.error());
  const bool speaks = world->rank() == 0;
  if (const auto status = check_picture(*world, options); !status) return fail_once(status.error(), speaks);
  auto rows = measure(options, {world->library()}, speaks);
  if (!rows) return fail_once(rows.error(), speaks);
  for (BenchRow& row : *rows) row.trust = world->trust();
  return speaks ? print_rows(*rows, options) : commands::exit_done;
}

int print_rows(const std::vector<ScalingRow>& rows, const BenchOptions& options) {
  std::fputs(options.json ? to_json(rows).c_str() : to_table(rows).c_str(), stdout);
  if (options.svg.empty()) return commands::exit_done;
  const auto bytes = parse_bytes(options.gradients);
  const auto written = write_file(options.svg, draw_scaling(rows, {bytes ? *bytes : 0, options.compute_ms}));
  return written ? commands::exit_done : fail(written.error());
}

int print_topology(const NodeTopology& topology, const BenchOptions& options) {
  std::fputs(options.json ? to_json(topology).c_str() : to_table(topology).c_str(), stdout);
  return commands::exit_done;
}

/// Measures something as a rank of a step; rank 0 prints it. `measure(world, progress)` returns it.
template <typename Measure, typename Print>
int measure_in_step(const BenchOptions& options, Measure measure, Print print) {
  const auto world = World::join();
  if (!world) return fail(world.error());
  const bool speaks = world->rank() == 0;
  if (const auto status = check_picture(*world, options); !status) return fail_once(status.error(), speaks);
  const ProgressLine line(speaks);
  const auto measured = measure(*world, [&](std::string_view what) { line(what); });
  if (!measured) return fail_once(measured.error(), speaks);
  return speaks ? print(*measured, options) : commands::exit_done;
}

/// Runs the same program once for each rank; rank 0 prints.
int again_for_each_rank(std::vector<std::string> arguments, const BenchOptions& options) {
  if (options.json) arguments.emplace_back("--json");
  if (!options.svg.empty()) arguments.insert(arguments.end(), {"--svg", options.svg});
  const auto status = run_ranks(options.ranks, arguments);
  return status ? *status : fail(status.error());
}

int scale(const BenchOptions& options) {
  if (const auto status = parse_bytes(options.gradients); !status) return fail(status.error());
  if (options.ranks == 0) {
    const auto measure_all = [&](const World& world, const auto& progress) {
      return measure_scaling(world, options, progress);
    };
    return measure_in_step(options, measure_all, [](const std::vector<ScalingRow>& rows, const BenchOptions& chosen) {
      return print_rows(rows, chosen);
    });
  }
  return again_for_each_rank(
      {"--scaling", "--gradients", options.gradients, "--compute-ms", std::to_string(options.compute_ms)}, options);
}

int map(const BenchOptions& options) {
  return options.ranks > 0 ? again_for_each_rank({"--topology"}, options)
                           : measure_in_step(options, measure_topology, print_topology);
}

int serve(const std::string& socket) {
  const auto world = World::join();
  return world ? world->serve(socket) : fail(world.error());
}

}  // namespace

int bench(const BenchOptions& options) {
  if (!options.worker.empty()) return serve(options.worker);
  if (options.scaling) return scale(options);
  if (options.topology) return map(options);
  return options.ranks > 0 ? bench_here(options) : bench_in_step(options);
}

}  // namespace amldist::tools
