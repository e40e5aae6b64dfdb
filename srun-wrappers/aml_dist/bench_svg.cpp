#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "aml_dist/bench_output.hpp"
#include "aml_dist/svg.hpp"
#include "collective/data_type.hpp"
#include "collective/stalls.hpp"
#include "core/text.hpp"

namespace amldist::tools {
namespace {

using text::concat;
using Anchor = TextStyle::Anchor;

constexpr int page_width = 1000;
constexpr int page_height = 560;
constexpr double left = 90;
constexpr double right = page_width - 30;
constexpr double top = 96;
constexpr double bottom = page_height - 84;
constexpr std::string_view ink = "#1f2933";
constexpr std::string_view pale_ink = "#52606d";
constexpr std::string_view grid_ink = "#dde3ea";
constexpr std::array<std::string_view, 6> colours = {"#b3261e", "#4a7fb5", "#5a9e6f", "#8b6fb3", "#f0b429", "#52606d"};

/// A number for an axis: three digits are enough.
std::string plain(double value) {
  std::array<char, 32> words{};
  std::snprintf(words.data(), words.size(), "%.3g", value);
  return words.data();
}

/// Logarithmic both ways: sizes over many powers of two, bandwidths over several of ten.
struct Axes {
  double least_size = 1;
  double most_size = 2;
  double least = 1;  ///< power of ten below all values
  double most = 10;  ///< and above

  [[nodiscard]] double x(double size) const {
    return left +
           (std::log2(size) - std::log2(least_size)) / (std::log2(most_size) - std::log2(least_size)) * (right - left);
  }
  [[nodiscard]] double y(double value) const {
    const double part = (std::log10(value) - std::log10(least)) / (std::log10(most) - std::log10(least));
    return bottom - std::clamp(part, 0.0, 1.0) * (bottom - top);
  }
};

/// Bus bandwidth; of one rank, which has none, the plain one.
double value_of(const BenchRow& row) { return row.size == 1 ? row.algorithm_bandwidth() : row.bus_bandwidth(); }

std::vector<const BenchRow*> drawable(std::span<const BenchRow> rows) {
  std::vector<const BenchRow*> fit;
  for (const BenchRow& row : rows) {
    if (row.request.bytes > 0 && value_of(row) > 0) fit.push_back(&row);
  }
  return fit;
}

Axes axes_for(const std::vector<const BenchRow*>& rows) {
  double least = 1e300, most = 0, smallest = 1e300, largest = 0;
  for (const BenchRow* row : rows) {
    least = std::min(least, value_of(*row));
    most = std::max(most, value_of(*row));
    smallest = std::min(smallest, static_cast<double>(row->request.bytes));
    largest = std::max(largest, static_cast<double>(row->request.bytes));
  }
  if (rows.empty()) return {};
  Axes axes{smallest, std::max(largest, smallest * 2), std::pow(10, std::floor(std::log10(least))),
            std::pow(10, std::ceil(std::log10(most)))};
  if (axes.most <= axes.least) axes.most = axes.least * 10;
  return axes;
}

void draw_grid(Svg& svg, const Axes& axes) {
  for (double value = axes.least; value <= axes.most * 1.001; value *= 10) {
    const std::array<Point, 2> line = {{{left, axes.y(value)}, {right, axes.y(value)}}};
    svg.line(line, {grid_ink, 1});
    svg.text(static_cast<int>(left) - 8, static_cast<int>(axes.y(value)) + 4, plain(value),
             {11, pale_ink, false, Anchor::end});
  }
  const double octaves = std::log2(axes.most_size / axes.least_size);
  const double step = std::max(1.0, std::ceil(octaves / 12));
  for (double octave = 0; octave <= octaves + 0.001; octave += step) {
    const double size = axes.least_size * std::exp2(octave);
    const std::array<Point, 2> line = {{{axes.x(size), top}, {axes.x(size), bottom}}};
    svg.line(line, {grid_ink, 1});
    svg.text(static_cast<int>(axes.x(size)), static_cast<int>(bottom) + 20,
             collective::describe_bytes(static_cast<std::uint64_t>(size)), {11, pale_ink, false, Anchor::middle});
  }
}

void draw_curve(Svg& svg, const Axes& axes, const std::vector<const BenchRow*>& rows, const std::string& peer,
                std::string_view colour) {
  std::vector<Point> points;
  for (const BenchRow* row : rows) {
    if (row->peer == peer) points.push_back({axes.x(static_cast<double>(row->request.bytes)), axes.y(value_of(*row))});
  }
  svg.open_group(peer);
  svg.line(points, {colour, 2.5});
  for (const Point& point : points) svg.dot(point, 3.5, colour);
  svg.close_group();
}

std::string title_of(const BenchRow& row) {
  const auto type = collective::to_string(static_cast<collective::DataType>(row.request.type));
  return concat({bench_op_name(row.request.op), " of ", type, row.request.in_place != 0 ? " in place, " : ", ",
                 text::count(static_cast<std::uint64_t>(row.size), "rank")});
}

}  // namespace

std::string draw_bench(std::span<const BenchRow> rows) {
  const auto fit = drawable(rows);
  const Axes axes = axes_for(fit);
  Svg svg;
  const std::string title = rows.empty() ? "Nothing was measured" : title_of(rows.front());
  svg.text(24, 38, title, {20, ink, true});
  svg.text(24, 66, "Bus bandwidth in GB/s (with one rank: bytes over time) by the size of the array", {14, pale_ink});
  draw_grid(svg, axes);
  std::vector<std::string> peers;
  for (const BenchRow* row : fit) {
    if (std::ranges::find(peers, row->peer) == peers.end()) peers.push_back(row->peer);
  }
  int x = static_cast<int>(left);
  for (std::size_t i = 0; i < peers.size(); ++i) {
    const std::string_view colour = colours[i % colours.size()];
    draw_curve(svg, axes, fit, peers[i], colour);
    svg.bar({static_cast<double>(x), page_height - 36.0}, 14, 14, colour);
    svg.text(x + 20, page_height - 24, peers[i], {13, ink});
    x += 60 + static_cast<int>(peers[i].size()) * 8;
  }
  return svg.finish(page_width, page_height, title);
}

}  // namespace amldist::tools
