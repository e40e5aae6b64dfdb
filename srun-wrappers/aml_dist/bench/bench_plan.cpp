#include "aml_dist/bench/bench_plan.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>

#include "base/text/text.hpp"
#include "calls/data_type.hpp"

namespace amldist::tools {
namespace {

using text::concat;

constexpr double sample_us = 4000;  // one round of one library lasts about this long
constexpr std::uint64_t most_iterations = 20000;

template <typename Enumerator>
std::optional<int> number_of(const std::string& name, int count) {
  for (int i = 0; i < count; ++i) {
    if (calls::to_string(static_cast<Enumerator>(i)) == name) return i;
  }
  return std::nullopt;
}

template <typename Name>
Error unknown(std::string_view option, const std::string& word, int count, Name name) {
  std::vector<std::string> names;
  for (int i = 0; i < count; ++i) names.emplace_back(name(i));
  const std::vector<std::string_view> known(names.begin(), names.end());
  return {Errc::invalid_argument,
          concat({option, " ", text::quote(word), " is not known: there are ", text::join(known)})};
}

/// "all_reduce" and "all-reduce" are "allreduce".
std::string without_dashes(std::string_view word) {
  std::string out(word);
  std::erase_if(out, [](char c) { return c == '-' || c == '_'; });
  return out;
}

/// nccl-tests' names of C types.
std::string canonical_type(const std::string& word) {
  if (word == "half") return "float16";
  if (word == "float") return "float32";
  return word == "double" ? "float64" : word;
}

// The types and operators that bench/core.c fills and checks: without bool, and without the operators on bits.
constexpr int arithmetic_types = 12;
constexpr int arithmetic_ops = 5;

Result<int> parse_op(const std::string& word) {
  for (int op = 0; op < BENCH_OPS; ++op) {
    if (without_dashes(word) == without_dashes(bench_op_name(op))) return op;
  }
  return unknown("--op", word, BENCH_OPS, bench_op_name);
}

Result<bench_request> parse_kind(const BenchOptions& options) {
  bench_request request{};
  const auto op = parse_op(options.op);
  if (!op) return op.error();
  const auto type = number_of<calls::DataType>(canonical_type(options.type), arithmetic_types);
  const auto redop = number_of<calls::ReduceOp>(options.redop, arithmetic_ops);
  if (!type) {
    return unknown("--type", options.type, arithmetic_types,
                   [](int i) { return calls::to_string(static_cast<calls::DataType>(i)); });
  }
  if (!redop) {
    return unknown("--redop", options.redop, arithmetic_ops,
                   [](int i) { return calls::to_string(static_cast<calls::ReduceOp>(i)); });
  }
  if (*op == BENCH_SENDRECV && options.in_place) {
    return Error{Errc::invalid_argument, "--op sendrecv has no --in-place: a message needs two buffers"};
  }
  request.op = *op;
  request.type = *type;
  request.redop = *redop;
  request.in_place = options.in_place;
  request.off_cache = options.off_cache;
  request.rewrite = options.rewrite;
  request.own_memory = options.own_memory;
  return request;
}

/// Iterations for one sample, from a first estimate of how long a call takes.
Result<std::uint64_t> calibrate(const MeasuredLibrary& library, bench_request request) {
  double each = 0;
  for (const std::uint64_t tries : {1, 3}) {
    request.iterations = tries;
    const auto result = library.measure(request);
    if (!result) return result.error();
    each = result->microseconds;
  }
  const double wanted = sample_us / std::max(each, 0.05);
  return static_cast<std::uint64_t>(std::clamp(wanted, 1.0, static_cast<double>(most_iterations)));
}

double median(std::vector<double> samples) {
  std::ranges::sort(samples);
  return samples[samples.size() / 2];
}

/// The state of one library and one size during the rounds.
struct Entry {
  const MeasuredLibrary* library;
  BenchRow row;
  std::uint64_t iterations = 1;
  std::vector<double> samples;
};

/// A checked call first, which also warms up. nullopt if this library does not support it.
Result<std::optional<Entry>> enter(const MeasuredLibrary& library, bench_request request) {
  request.iterations = 0;
  const auto checked = library.measure(request);
  if (!checked) return checked.error();
  if (checked->status == BENCH_UNSUPPORTED) return std::optional<Entry>();
  const auto iterations = calibrate(library, request);
  if (!iterations) return iterations.error();
  return std::optional(Entry{&library, {library.name, request, library.size, 0, checked->wrong}, *iterations, {}});
}

Result<void> run_round(std::vector<Entry>& entries) {
  for (Entry& entry : entries) {
    bench_request request = entry.row.request;
    request.iterations = entry.iterations;
    const auto result = entry.library->measure(request);
    if (!result) return result.error();
    entry.samples.push_back(result->microseconds);
  }
  return {};
}

}  // namespace

double BenchRow::algorithm_bandwidth() const {
  return microseconds > 0 ? static_cast<double>(request.bytes) / microseconds * 1e-3 : 0;
}

double BenchRow::bus_bandwidth() const {
  const double n = size;
  double factor = 1;  // broadcast, reduce, sendrecv
  if (request.op == BENCH_ALLREDUCE) factor = 2 * (n - 1) / n;
  const bool split = request.op == BENCH_ALLGATHER || request.op == BENCH_REDUCE_SCATTER ||
                     request.op == BENCH_ALLTOALL || request.op == BENCH_GATHER || request.op == BENCH_SCATTER;
  if (split) factor = (n - 1) / n;
  return size == 1 ? 0 : factor * algorithm_bandwidth();
}

Result<std::uint64_t> parse_bytes(const std::string& words) {
  const auto wrong = Error{Errc::invalid_argument,
                           concat({text::quote(words), " is not a size: give bytes, as in 4, 64K, 16M or 1G"})};
  constexpr std::uint64_t most = std::uint64_t{1} << 44;
  constexpr std::string_view units = "KMG";
  std::string_view digits = words;
  unsigned shift = 0;
  if (!digits.empty()) {
    const auto unit = units.find(static_cast<char>(std::toupper(static_cast<unsigned char>(digits.back()))));
    if (unit != std::string_view::npos) {
      shift = 10 * (static_cast<unsigned>(unit) + 1);
      digits.remove_suffix(1);
    }
  }
  const auto number = text::to_number(digits, most >> shift);
  if (!number) return wrong;
  return *number << shift;
}

Result<BenchPlan> make_plan(const BenchOptions& options, int size) {
  const auto kind = parse_kind(options);
  if (!kind) return kind.error();
  const auto min = parse_bytes(options.min);
  const auto max = parse_bytes(options.max);
  if (!min) return min.error();
  if (!max) return max.error();
  if (*min > *max)
    return Error{Errc::invalid_argument, concat({"--min ", options.min, " is more than --max ", options.max})};
  BenchPlan plan;
  plan.rounds = options.rounds;
  for (std::uint64_t bytes = *min; bytes <= *max; bytes *= options.factor) {
    bench_request request = *kind;
    const std::uint64_t element = bench_type_size(request.type);
    const bool whole = bench_count(request.op, element, request.type, size) != 0;  // not divided between ranks
    request.bytes =
        bench_count(request.op, bytes, request.type, size) * element * (whole ? 1U : static_cast<unsigned>(size));
    const bool again = !plan.requests.empty() && plan.requests.back().bytes == request.bytes;
    if (!again) plan.requests.push_back(request);
    if (bytes == 0 || request.op == BENCH_BARRIER) break;
  }
  return plan;
}

Result<std::vector<BenchRow>> run_plan(const BenchPlan& plan, const std::vector<MeasuredLibrary>& libraries,
                                       const Progress& progress) {
  std::vector<BenchRow> rows;
  for (std::size_t i = 0; i < plan.requests.size(); ++i) {
    progress(plan.requests[i], i, plan.requests.size());
    std::vector<Entry> entries;
    for (const MeasuredLibrary& library : libraries) {
      auto entry = enter(library, plan.requests[i]);
      if (!entry) return entry.error();
      if (*entry) entries.push_back(std::move(**entry));
    }
    for (unsigned round = 0; round < plan.rounds; ++round) {
      if (auto status = run_round(entries); !status) return status.error();
    }
    for (Entry& entry : entries) {
      entry.row.microseconds = median(entry.samples);
      rows.push_back(std::move(entry.row));
    }
  }
  return rows;
}

}  // namespace amldist::tools
