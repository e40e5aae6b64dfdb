#include "aml_dist/bench/bench_output.hpp"

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "aml_dist/common/table.hpp"
#include "calls/data_type.hpp"
#include "shared/json.hpp"

namespace amldist::tools {
namespace {

std::string_view type_of(const BenchRow& row) {
  return calls::to_string(static_cast<calls::DataType>(row.request.type));
}

bool reduces(const BenchRow& row) {
  return row.request.op == BENCH_ALLREDUCE || row.request.op == BENCH_REDUCE || row.request.op == BENCH_REDUCE_SCATTER;
}

std::string_view redop_of(const BenchRow& row) {
  return reduces(row) ? calls::to_string(static_cast<calls::ReduceOp>(row.request.redop)) : "none";
}

std::uint64_t count_of(const BenchRow& row) {
  return bench_count(row.request.op, row.request.bytes, row.request.type, row.size);
}

/// The time of this row divided by that of the first library with the same size.
std::string ratio(std::span<const BenchRow> rows, const BenchRow& row) {
  for (const BenchRow& first : rows) {
    if (first.request.bytes != row.request.bytes) continue;
    const bool itself = &first == &row;
    return itself || first.microseconds <= 0 ? "" : decimal(row.microseconds / first.microseconds, 2);
  }
  return "";
}

}  // namespace

std::string to_table(std::span<const BenchRow> rows) {
  std::vector<std::vector<std::string>> table = {{"SIZE", "COUNT", "TYPE", "REDOP", "OP", "PLACE", "TIME_US",
                                                  "ALGBW_GBS", "BUSBW_GBS", "WRONG", "LIBRARY", "TIMES_OURS"}};
  for (const BenchRow& row : rows) {
    table.push_back({std::to_string(row.request.bytes), std::to_string(count_of(row)), std::string(type_of(row)),
                     std::string(redop_of(row)), bench_op_name(row.request.op),
                     row.request.in_place != 0 ? "in" : "out", decimal(row.microseconds, 2),
                     decimal(row.algorithm_bandwidth(), 2), row.size == 1 ? "n/a" : decimal(row.bus_bandwidth(), 2),
                     std::to_string(row.wrong), row.peer, ratio(rows, row)});
  }
  if (rows.empty() || rows.front().trust.empty()) return format_table(table);
  return format_table(table) + "the world is " + rows.front().trust + "\n";
}

std::string to_json(std::span<const BenchRow> rows) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const BenchRow& row : rows) {
    array.push_back({{"op", bench_op_name(row.request.op)},
                     {"bytes", row.request.bytes},
                     {"count", count_of(row)},
                     {"type", type_of(row)},
                     {"redop", redop_of(row)},
                     {"in_place", row.request.in_place != 0},
                     {"ranks", row.size},
                     {"time_us", row.microseconds},
                     {"algbw_GBs", row.algorithm_bandwidth()},
                     {"busbw_GBs", row.bus_bandwidth()},
                     {"wrong", row.wrong},
                     {"peer", row.peer}});
    if (!row.trust.empty()) array.back()["trust"] = row.trust;
  }
  return commands::json_text(array);
}

}  // namespace amldist::tools
