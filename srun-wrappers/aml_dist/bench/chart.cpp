#include "aml_dist/bench/chart.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace amldist::tools {
namespace {

using Anchor = TextStyle::Anchor;

constexpr double dot_radius = 3.5;

/// 0 at the start of the axis, 1 at its end.
double part_of(const Axis& axis, double value) {
  const auto on_scale = [&](double v) { return axis.logarithmic ? std::log(v) : v; };
  const double length = on_scale(axis.most) - on_scale(axis.least);
  return length > 0 ? std::clamp((on_scale(value) - on_scale(axis.least)) / length, 0.0, 1.0) : 0.5;
}

Point place_of(const Chart& chart, const Point& point) {
  return {chart.area.x + part_of(chart.x, point.x) * chart.area.width,
          chart.area.y + (1 - part_of(chart.y, point.y)) * chart.area.height};
}

void draw_grid(Svg& svg, const Chart& chart) {
  const Box& area = chart.area;
  const double bottom = area.y + area.height;
  for (const Mark& mark : chart.y.marks) {
    const double y = place_of(chart, {chart.x.least, mark.value}).y;
    const std::array<Point, 2> line = {{{static_cast<double>(area.x), y}, {area.x + 0.0 + area.width, y}}};
    svg.line(line, {grid_ink, 1});
    svg.text(area.x - 8, static_cast<int>(y) + 4, mark.words, {11, pale_ink, false, Anchor::end});
  }
  for (const Mark& mark : chart.x.marks) {
    const double x = place_of(chart, {mark.value, chart.y.least}).x;
    const std::array<Point, 2> line = {{{x, static_cast<double>(area.y)}, {x, bottom}}};
    svg.line(line, {grid_ink, 1});
    svg.text(static_cast<int>(x), static_cast<int>(bottom) + 18, mark.words, {11, pale_ink, false, Anchor::middle});
  }
  svg.text(area.x, area.y - 34, chart.title, {14, ink, true});
  svg.text(area.x, area.y - 14, chart.y.title, {12, pale_ink});
  svg.text(area.x + area.width, static_cast<int>(bottom) + 38, chart.x.title, {12, pale_ink, false, Anchor::end});
}

/// The direction of a curve from a point to its neighbour, on the page.
enum class Way { none, level, up, down };

Way way_to(std::span<const Point> places, std::size_t from, std::size_t to) {
  constexpr double words_height = 15;
  if (to >= places.size()) return Way::none;
  const double rise = places[from].y - places[to].y;
  return rise > words_height ? Way::up : rise < -words_height ? Way::down : Way::level;
}

/// Words beside a point, placed so that they do not cover the curve.
void draw_label(Svg& svg, const std::string& words, Point place, Way left, Way right) {
  const bool falls = right == Way::down && left != Way::down;
  const bool rises = right == Way::up && left != Way::up;
  const bool above = right == Way::none ? left == Way::down : right == Way::down;
  const bool beside = left == Way::none || falls || rises;
  const Anchor anchor = beside ? Anchor::start : right == Way::none ? Anchor::end : Anchor::middle;
  svg.text(static_cast<int>(place.x) + (beside ? 9 : 0), static_cast<int>(place.y) + (above ? -9 : 20), words,
           {12, ink, true, anchor});
}

void draw_labels(Svg& svg, const Curve& curve, std::span<const Point> places) {
  const std::size_t count = std::min(curve.labels.size(), places.size());
  for (std::size_t i = 0; i < count; ++i) {
    const Way left = i == 0 ? Way::none : way_to(places, i, i - 1);
    draw_label(svg, curve.labels[i], places[i], left, way_to(places, i, i + 1));
  }
}

void draw_curve(Svg& svg, const Chart& chart, const Curve& curve) {
  std::vector<Point> places;
  for (const Point& point : curve.points) places.push_back(place_of(chart, point));
  svg.open_group(curve.name);
  svg.line(places, {curve.colour, curve.is_ideal ? 1.5 : 2.5, curve.is_ideal});
  if (!curve.is_ideal) {
    for (const Point& place : places) svg.dot(place, dot_radius, curve.colour);
  }
  draw_labels(svg, curve, places);
  svg.close_group();
}

}  // namespace

std::string_view curve_colour(std::size_t index) {
  constexpr std::array<std::string_view, 6> colours = {"#b3261e", "#4a7fb5", "#5a9e6f",
                                                       "#8b6fb3", "#f0b429", "#52606d"};
  return colours[index % colours.size()];
}

std::string plain_number(double value) {
  std::array<char, 32> words{};
  const int digits = value > 0 ? std::clamp(3 - static_cast<int>(std::floor(std::log10(value))), 0, 12) : 0;
  std::snprintf(words.data(), words.size(), "%.*f", digits, value);
  std::string out = words.data();
  if (out.find('.') == std::string::npos) return out;
  out.erase(out.find_last_not_of('0') + 1);
  if (out.back() == '.') out.pop_back();
  return out;
}

Axis decades(std::string title, double least, double most) {
  Axis axis{std::move(title),
            std::pow(10, std::floor(std::log10(least))),
            std::pow(10, std::ceil(std::log10(most))),
            {},
            true};
  if (axis.most <= axis.least) axis.most = axis.least * 10;
  const double all = std::round(std::log10(axis.most / axis.least));
  const double step = std::ceil(all / 7);
  for (double decade = 0; decade <= all; decade += step) {
    const double value = axis.least * std::pow(10, decade);
    axis.marks.push_back({value, plain_number(value)});
  }
  return axis;
}

Axis from_zero(std::string title, double most) {
  const double rough = std::max(most, 1e-9) / 5;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.5, 2.0, 1.0}) {
    if (factor * power >= rough) step = factor * power;
  }
  Axis axis{std::move(title), 0, std::ceil(most / step - 1e-9) * step, {}, false};
  for (double value = 0; value <= axis.most + step / 2; value += step)
    axis.marks.push_back({value, plain_number(value)});
  return axis;
}

void draw_chart(Svg& svg, const Chart& chart) {
  draw_grid(svg, chart);
  for (const Curve& curve : chart.curves) draw_curve(svg, chart, curve);
}

void draw_legend(Svg& svg, std::span<const Curve> curves, int x, int y) {
  for (const Curve& curve : curves) {
    const std::array<Point, 2> line = {{{x + 0.0, y - 4.0}, {x + 22.0, y - 4.0}}};
    svg.line(line, {curve.colour, curve.is_ideal ? 1.5 : 2.5, curve.is_ideal});
    if (!curve.is_ideal) svg.dot({x + 11.0, y - 4.0}, dot_radius, curve.colour);
    svg.text(x + 30, y, curve.name, {13, ink});
    x += 64 + static_cast<int>(curve.name.size()) * 8;
  }
}

}  // namespace amldist::tools
