#include <algorithm>
#include <cmath>

#include "aml_dist/bench/bench_output.hpp"
#include "aml_dist/bench/chart.hpp"
#include "base/text/text.hpp"
#include "calls/call_text.hpp"
#include "calls/data_type.hpp"
#include "shared/svg.hpp"

namespace amldist::tools {
namespace {

using text::concat;
using Value = double (*)(const BenchRow&);

constexpr int most_sizes = 7;  // labels at the axis

double time_of(const BenchRow& row) { return row.microseconds; }

/// Bus bandwidth; for one rank, which has none, the plain bandwidth.
double bandwidth_of(const BenchRow& row) { return row.size == 1 ? row.algorithm_bandwidth() : row.bus_bandwidth(); }

/// A barrier has no bytes, and a logarithmic axis no 0.
double size_of(const BenchRow& row) { return static_cast<double>(std::max<std::uint64_t>(row.request.bytes, 1)); }

Axis axis_of_sizes(std::span<const BenchRow> rows) {
  const auto [least, most] = std::ranges::minmax_element(rows, {}, size_of);
  Axis axis{
      rows.front().request.op == BENCH_BARRIER ? "" : "size of the array", size_of(*least), size_of(*most), {}, true};
  const double octaves = std::log2(axis.most / axis.least);
  const double step = std::max(1.0, std::ceil(octaves / (most_sizes - 1)));
  for (double octave = 0; octave <= octaves + 0.001; octave += step) {
    const double size = axis.least * std::exp2(octave);
    axis.marks.push_back({size, rows.front().request.bytes == 0
                                    ? std::string("no data")
                                    : calls::describe_bytes(static_cast<std::uint64_t>(size))});
  }
  return axis;
}

/// One curve for each library, in the order of the rows.
std::vector<Curve> curves_of(std::span<const BenchRow> rows, Value value) {
  std::vector<Curve> curves;
  for (const BenchRow& row : rows) {
    auto curve = std::ranges::find(curves, row.peer, &Curve::name);
    if (curve == curves.end())
      curve = curves.insert(curves.end(), {row.peer, curve_colour(curves.size()), {}, {}, false});
    if (value(row) > 0) curve->points.push_back({size_of(row), value(row)});
  }
  return curves;
}

Axis axis_of_values(std::string title, const std::vector<Curve>& curves) {
  double least = 1e300;
  double most = 0;
  for (const Curve& curve : curves) {
    for (const Point& point : curve.points) {
      least = std::min(least, point.y);
      most = std::max(most, point.y);
    }
  }
  return most > 0 ? decades(std::move(title), least, most) : decades(std::move(title), 1, 10);
}

Chart chart_of(std::span<const BenchRow> rows, int left, std::string title, std::string unit, Value value) {
  auto curves = curves_of(rows, value);
  Axis y = axis_of_values(std::move(unit), curves);
  return {{left, chart_top, chart_width, chart_height},
          std::move(title),
          axis_of_sizes(rows),
          std::move(y),
          std::move(curves)};
}

std::string title_of(const BenchRow& row) {
  const std::string ranks = text::count(static_cast<std::uint64_t>(row.size), "rank");
  if (row.request.op == BENCH_BARRIER) return concat({"barrier, ", ranks});
  const auto type = calls::to_string(static_cast<calls::DataType>(row.request.type));
  return concat({bench_op_name(row.request.op), " of ", type, row.request.in_place != 0 ? " in place, " : ", ", ranks});
}

}  // namespace

std::string draw_bench(std::span<const BenchRow> rows) {
  Svg svg;
  const std::string title = rows.empty() ? "Nothing was measured" : title_of(rows.front());
  svg.text(24, 38, title, {20, "#1f2933", true});
  svg.text(24, 64, "One call on the slowest rank, the median of the samples; every result was checked",
           {14, "#52606d"});
  const bool moves_data = rows.empty() || rows.front().request.op != BENCH_BARRIER;
  if (!rows.empty()) {
    const bool alone = rows.front().size == 1;
    const Chart times = chart_of(rows, 80, "Time of a call", "microseconds; less is better", time_of);
    draw_chart(svg, times);
    if (moves_data) {
      draw_chart(svg, chart_of(rows, 616, alone ? "Bandwidth: bytes over time" : "Bus bandwidth",
                               "GB/s; more is better", bandwidth_of));
    }
    draw_legend(svg, times.curves, 80, page_height - 20);
  }
  return svg.finish(moves_data ? page_width : page_width / 2 + 40, page_height, title, Scheme::light_and_dark);
}

}  // namespace amldist::tools
