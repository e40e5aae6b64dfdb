#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "aml_dist/bench/bench_scaling.hpp"
#include "aml_dist/bench/chart.hpp"
#include "aml_dist/common/table.hpp"
#include "base/text/text.hpp"
#include "calls/call_text.hpp"
#include "shared/svg.hpp"

namespace amldist::tools {
namespace {

using text::concat;

constexpr std::string_view ideal_colour = "#52606d";

/// Nodes, or ranks where there is one node only.
struct ScalingUnit {
  std::string name;
  bool are_nodes;
  [[nodiscard]] double of(const ScalingRow& row) const { return are_nodes ? row.nodes : row.ranks; }
};

ScalingUnit unit_of(std::span<const ScalingRow> rows) {
  const bool nodes = rows.back().nodes > 1;
  return {nodes ? "nodes" : "ranks on one node", nodes};
}

Axis axis_of(std::span<const ScalingRow> rows, const ScalingUnit& unit) {
  Axis axis{unit.name, unit.of(rows.front()), unit.of(rows.back()), {}, true};
  for (const ScalingRow& row : rows) axis.marks.push_back({unit.of(row), plain_number(unit.of(row))});
  return axis;
}

std::string three_digits(double value) { return decimal(value, value < 10 ? 2 : value < 100 ? 1 : 0); }

double percent_of(const ScalingRow& row) { return 100 * row.efficiency(); }

Chart efficiency_chart(std::span<const ScalingRow> rows, const ScalingUnit& unit) {
  Curve ideal{"ideal: twice the hardware, half the time", ideal_colour, {}, {}, true};
  Curve measured{"measured", curve_colour(0), {}, {}, false};
  double most = 100;
  for (const ScalingRow& row : rows) {
    ideal.points.push_back({unit.of(row), 100});
    measured.points.push_back({unit.of(row), percent_of(row)});
    measured.labels.push_back(decimal(percent_of(row), 1) + " %");
    most = std::max(most, percent_of(row));
  }
  return {{80, chart_top, chart_width, chart_height},
          "Scaling efficiency",
          axis_of(rows, unit),
          from_zero("per cent of the ideal", most * 1.1),
          {std::move(ideal), std::move(measured)}};
}

/// Both logarithmic, so that the ideal is a straight line.
Chart throughput_chart(std::span<const ScalingRow> rows, const ScalingUnit& unit) {
  Curve ideal{"ideal", ideal_colour, {}, {}, true};
  Curve measured{"measured", curve_colour(0), {}, {}, false};
  double least = rows.front().steps_per_second();
  double most = least;
  for (const ScalingRow& row : rows) {
    ideal.points.push_back({unit.of(row), 1000 / row.ideal_ms});
    measured.points.push_back({unit.of(row), row.steps_per_second()});
    measured.labels.push_back(three_digits(row.steps_per_second()));
    least = std::min(least, row.steps_per_second());
    most = std::max({most, row.steps_per_second(), 1000 / row.ideal_ms});
  }
  const double first = rows.front().steps_per_second();
  const double below = std::floor(std::log2(least / first) - 0.2);
  const double above = std::max(std::ceil(std::log2(most / first) + 0.2), below + 1);
  Axis y{"steps per second", first * std::exp2(below), first * std::exp2(above), {}, true};
  const double step = std::max(1.0, std::ceil((above - below) / 8));
  for (double power = below; power <= above; power += step) {
    const double value = first * std::exp2(power);
    y.marks.push_back({value, three_digits(value)});
  }
  return {{616, chart_top, chart_width, chart_height},
          "Throughput",
          axis_of(rows, unit),
          std::move(y),
          {std::move(ideal), std::move(measured)}};
}

}  // namespace

std::string draw_scaling(std::span<const ScalingRow> rows, const ScalingWork& work) {
  Svg svg;
  const std::string title = concat({"A step of training on ", plain_number(rows.front().ranks), " to ",
                                    text::count(static_cast<std::uint64_t>(rows.back().ranks), "rank")});
  svg.text(24, 38, title, {20, "#1f2933", true});
  svg.text(24, 64,
           concat({decimal(work.compute_ms, 0), " ms of computing shared among the ranks, and ",
                   calls::describe_bytes(work.gradient_bytes), " of gradients all-reduced in buckets meanwhile"}),
           {14, "#52606d"});
  const ScalingUnit unit = unit_of(rows);
  const Chart efficiency = efficiency_chart(rows, unit);
  draw_chart(svg, efficiency);
  draw_chart(svg, throughput_chart(rows, unit));
  draw_legend(svg, efficiency.curves, 80, page_height - 20);
  return svg.finish(page_width, page_height, title, Scheme::light_and_dark);
}

}  // namespace amldist::tools
