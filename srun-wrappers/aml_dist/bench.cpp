#include "aml_dist/bench.hpp"

#include <unistd.h>

#include <cstdio>

#include "aml_dist/bench_local.hpp"
#include "aml_dist/bench_output.hpp"
#include "aml_dist/bench_plan.hpp"
#include "aml_dist/bench_scaling.hpp"
#include "aml_dist/bench_world.hpp"
#include "aml_dist/common.hpp"
#include "aml_dist/exit_status.hpp"
#include "collective/data_type.hpp"
#include "core/text.hpp"

namespace amldist::tools {
namespace {

using text::concat;

/// One line on a terminal that is written over again and again; nothing where nobody looks.
class ProgressLine {
 public:
  explicit ProgressLine(bool shown) : shown_(shown && ::isatty(STDERR_FILENO) == 1) {}
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;
  ~ProgressLine() {
    if (shown_) std::fputs("\r\033[K", stderr);
  }
  void operator()(const bench_request& request, std::size_t done, std::size_t all) const {
    if (!shown_) return;
    std::fprintf(stderr, "\r\033[Kaml-dist: %s of %llu bytes (%zu of %zu)", bench_op_name(request.op),
                 static_cast<unsigned long long>(request.bytes), done + 1, all);
  }

 private:
  bool shown_;
};

int print_rows(const std::vector<BenchRow>& rows, const BenchOptions& options) {
  if (!options.svg.empty()) {
    const auto written = write_file(options.svg, draw_bench(rows));
    if (!written) return fail(written.error());
  }
  std::fputs(options.json ? to_json(rows).c_str() : to_table(rows).c_str(), stdout);
  std::uint64_t wrong = 0;
  for (const BenchRow& row : rows) wrong += row.wrong;
  if (wrong != 0) return fail({Errc::internal, concat({std::to_string(wrong), " elements are wrong"})});
  return exit_fine;
}

Result<std::vector<BenchRow>> measure(const BenchOptions& options, const std::vector<Contender>& contenders,
                                      bool speaks) {
  const auto plan = make_plan(options, contenders.front().size);
  if (!plan) return plan.error();
  const ProgressLine line(speaks);
  return run_plan(*plan, contenders,
                  [&](const bench_request& request, std::size_t done, std::size_t all) { line(request, done, all); });
}

/// Ranks that this process starts itself.
int bench_here(const BenchOptions& options) {
  if (const auto plan = make_plan(options, options.ranks); !plan) return fail(plan.error());
  std::vector<std::unique_ptr<LocalRanks>> started;
  std::vector<Contender> contenders;
  auto own = LocalRanks::start_own(options.ranks);
  if (!own) return fail(own.error());
  started.push_back(std::move(*own));
  for (const std::string& peer : options.peers) {
    auto ranks = LocalRanks::start_peer(peer, options.ranks);
    if (!ranks) return fail(ranks.error());
    started.push_back(std::move(*ranks));
  }
  for (const auto& ranks : started) contenders.push_back(ranks->contender());
  const auto rows = measure(options, contenders, true);
  return rows ? print_rows(*rows, options) : fail(rows.error());
}

/// What a rank does with an error that every rank has: one of them says it.
int fail_once(const Error& error, bool speaks) {
  if (speaks) return fail(error);
  return error.code == Errc::invalid_argument ? exit_usage : exit_failed;
}

/// A rank of a step, or alone.
int bench_in_step(const BenchOptions& options) {
  if (!options.peers.empty()) {
    return fail({Errc::invalid_argument, "--peer needs --ranks N: other libraries are measured on one node"});
  }
  const auto world = World::join();
  if (!world) return fail(world.error());
  const bool speaks = world->rank() == 0;
  const auto rows = measure(options, {world->contender()}, speaks);
  // Every rank has the same error; one of them says it.
  if (!rows)
    return speaks ? fail(rows.error()) : rows.error().code == Errc::invalid_argument ? exit_usage : exit_failed;
  return speaks ? print_rows(*rows, options) : exit_fine;
}

int scale_in_step(const BenchOptions& options) {
  const auto world = World::join();
  if (!world) return fail(world.error());
  const bool speaks = world->rank() == 0;
  const auto rows = measure_scaling(*world, options);
  if (!rows) return fail_once(rows.error(), speaks);
  if (speaks) std::fputs(options.json ? to_json(*rows).c_str() : to_table(*rows).c_str(), stdout);
  return exit_fine;
}

/// The same program once for each rank; rank 0 prints.
int scale_here(const BenchOptions& options) {
  std::vector<std::string> arguments = {"--scaling", "--gradients", options.gradients, "--compute-ms",
                                        std::to_string(options.compute_ms)};
  if (options.json) arguments.emplace_back("--json");
  const auto status = run_ranks(options.ranks, arguments);
  return status ? *status : fail(status.error());
}

int scale(const BenchOptions& options) {
  if (!options.peers.empty() || !options.svg.empty()) {
    return fail({Errc::invalid_argument, "--scaling goes with --ranks, --gradients, --compute-ms and --json only"});
  }
  if (const auto bytes = parse_bytes(options.gradients); !bytes) return fail(bytes.error());
  return options.ranks > 0 ? scale_here(options) : scale_in_step(options);
}

int serve(const std::string& socket) {
  const auto world = World::join();
  return world ? world->serve(socket) : fail(world.error());
}

}  // namespace

int bench(const BenchOptions& options) {
  if (!options.worker.empty()) return serve(options.worker);
  if (options.scaling) return scale(options);
  return options.ranks > 0 ? bench_here(options) : bench_in_step(options);
}

}  // namespace amldist::tools
