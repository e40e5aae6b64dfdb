#include "aml_dist/bench/bench_scaling.hpp"

#include <amldist/amldist.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "aml_dist/common/table.hpp"
#include "base/text/text.hpp"
#include "shared/json.hpp"

namespace amldist::tools {
namespace {

using text::concat;

constexpr std::size_t layers = 24;
constexpr int steps = 5;

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// This many rounds of multiply-add on data that stays in the first cache: computing that uses no memory bandwidth.
void compute(std::uint64_t rounds) {
  constexpr std::size_t width = 256;
  static thread_local std::array<float, width> data = {};
  for (std::uint64_t round = 0; round < rounds; ++round) {
    for (float& each : data) each = each * 0.999F + 0.001F;
    asm volatile("" : : "g"(data.data()) : "memory");
  }
}

/// Rounds that take `ms` on this core when no other program computes.
std::uint64_t calibrate(double ms) {
  std::uint64_t rounds = 1000;
  for (;;) {
    const double start = now_ms();
    compute(rounds);
    const double taken = now_ms() - start;
    if (taken > 20) return static_cast<std::uint64_t>(static_cast<double>(rounds) * ms / taken);
    rounds *= 2;
  }
}

struct Deleter {
  void operator()(amldist_comm* comm) const noexcept { amldist_finalize(comm); }
  void operator()(amldist_reducer* reducer) const noexcept { amldist_reducer_free(reducer); }
};
using Comm = std::unique_ptr<amldist_comm, Deleter>;
using Reducer = std::unique_ptr<amldist_reducer, Deleter>;

Result<Reducer> make_reducer(amldist_comm* comm, std::uint64_t bytes) {
  const std::vector<std::size_t> counts(layers, std::max<std::uint64_t>(bytes / layers / sizeof(float), 1));
  amldist_reducer* reducer = nullptr;
  if (amldist_reducer_create(comm, counts.data(), layers, AMLDIST_FLOAT32, nullptr, &reducer) != AMLDIST_OK)
    return library_error();
  Reducer made(reducer);
  void* first = nullptr;
  if (amldist_reducer_view(reducer, 0, &first) != AMLDIST_OK) return library_error();
  return made;
}

/// One step: layer by layer from the last, each layer's gradient on its way while the next is computed.
Result<void> run_step(amldist_reducer* reducer, std::uint64_t rounds) {
  for (std::size_t layer = layers; layer-- > 0;) {
    compute(rounds / layers);
    if (amldist_reducer_ready(reducer, layer) != AMLDIST_OK) return library_error();
  }
  if (amldist_reducer_wait(reducer) != AMLDIST_OK) return library_error();
  return {};
}

/// Milliseconds of a step on the slowest rank; the median of some.
Result<double> time_steps(amldist_comm* comm, std::uint64_t rounds, std::uint64_t gradient_bytes) {
  const auto reducer = make_reducer(comm, gradient_bytes);
  if (!reducer) return reducer.error();
  std::vector<double> samples;
  for (int step = 0; step <= steps; ++step) {
    if (amldist_barrier(comm) != AMLDIST_OK) return library_error();
    const double start = now_ms();
    if (auto status = run_step(reducer->get(), rounds); !status) return status.error();
    double taken = now_ms() - start;
    if (amldist_allreduce(comm, &taken, &taken, 1, AMLDIST_FLOAT64, AMLDIST_MAX) != AMLDIST_OK) return library_error();
    if (step > 0) samples.push_back(taken);  // the first one warms up
  }
  std::ranges::sort(samples);
  return samples[samples.size() / 2];
}

/// 1, 2, 4, ... and all.
std::vector<int> parts_of(int all) {
  std::vector<int> parts;
  for (int part = 1; part < all; part *= 2) parts.push_back(part);
  parts.push_back(all);
  return parts;
}

/// Measures on the chosen ranks while the others wait; all get the row.
Result<ScalingRow> measure_part(amldist_comm* world, bool chosen, int nodes, std::uint64_t rounds,
                                std::uint64_t bytes) {
  amldist_comm* part = nullptr;
  if (amldist_split(world, chosen ? 0 : -1, amldist_rank(world), &part) != AMLDIST_OK) return library_error();
  const Comm owned(part);
  double told[2] = {0, 0};
  if (chosen) {
    const auto time = time_steps(part, rounds / static_cast<std::uint64_t>(amldist_size(part)), bytes);
    if (!time) return time.error();
    told[0] = *time;
    told[1] = amldist_size(part);
  }
  if (amldist_broadcast(world, told, 2, AMLDIST_FLOAT64, 0) != AMLDIST_OK) return library_error();
  return ScalingRow{static_cast<int>(told[1]), nodes, told[0], 0};
}

}  // namespace

Result<std::vector<ScalingRow>> measure_scaling(const World& world, const BenchOptions& options,
                                                const std::function<void(std::string_view)>& progress) {
  const auto bytes = parse_bytes(options.gradients);
  if (!bytes) return bytes.error();
  amldist_comm* const comm = world.comm();
  std::uint64_t rounds = world.rank() == 0 ? calibrate(options.compute_ms) : 0;
  if (amldist_broadcast(comm, &rounds, 1, AMLDIST_UINT64, 0) != AMLDIST_OK) return library_error();
  const int nodes = amldist_nodes(comm);
  std::vector<ScalingRow> rows;
  for (const int part : parts_of(nodes > 1 ? nodes : world.size())) {
    const bool chosen = nodes > 1 ? amldist_node_rank(comm) < part : world.rank() < part;
    progress(concat({"steps on ", std::to_string(part), nodes > 1 ? " nodes" : " ranks"}));
    auto row = measure_part(comm, chosen, nodes > 1 ? part : 1, rounds, *bytes);
    if (!row) return row.error();
    rows.push_back(*row);
    rows.back().ideal_ms = rows.front().step_ms * rows.front().ranks / rows.back().ranks;
  }
  return rows;
}

std::string to_table(const std::vector<ScalingRow>& rows) {
  std::vector<std::vector<std::string>> table = {
      {"RANKS", "NODES", "STEP_MS", "IDEAL_MS", "EFFICIENCY", "STEPS_PER_S"}};
  for (const ScalingRow& row : rows) {
    table.push_back({std::to_string(row.ranks), std::to_string(row.nodes), decimal(row.step_ms, 2),
                     decimal(row.ideal_ms, 2), decimal(100 * row.efficiency(), 1) + " %",
                     decimal(row.steps_per_second(), 2)});
  }
  return format_table(table);
}

std::string to_json(const std::vector<ScalingRow>& rows) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const ScalingRow& row : rows) {
    array.push_back({{"ranks", row.ranks},
                     {"nodes", row.nodes},
                     {"step_ms", row.step_ms},
                     {"ideal_ms", row.ideal_ms},
                     {"efficiency", row.efficiency()},
                     {"steps_per_s", row.steps_per_second()}});
  }
  return commands::json_text(array);
}

}  // namespace amldist::tools
