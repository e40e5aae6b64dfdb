#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <set>

#include "aml_run/sweep/sweep_view.hpp"
#include "base/text/text.hpp"
#include "shared/svg.hpp"

namespace amldist::run {
namespace {

using text::concat;

constexpr int width = 920;
constexpr int height = 620;
constexpr int left = 84;
constexpr int right = width - 40;
constexpr std::string_view good_colour = "#2b7a4b";
constexpr std::string_view trial_colour = "#3b76c4";
constexpr std::string_view bad_colour = "#c0504d";

std::string number_label(double number) {
  char out[32];
  std::snprintf(out, sizeof out, "%.4g", number);
  return out;
}

/// What lies between two numbers, with a little room around.
struct Range {
  double low = 0;
  double high = 1;
  [[nodiscard]] double share(double value) const { return high > low ? (value - low) / (high - low) : 0.5; }
};

Range metric_range(const SweepResults& results) {
  std::optional<Range> range;
  for (const TrialResult& trial : results.trials) {
    if (!trial.metric) continue;
    if (!range) range = Range{*trial.metric, *trial.metric};
    range->low = std::min(range->low, *trial.metric);
    range->high = std::max(range->high, *trial.metric);
  }
  Range out = range.value_or(Range{});
  const double room = out.high > out.low ? (out.high - out.low) * 0.06 : std::max(std::abs(out.high) * 0.1, 0.5);
  return {out.low - room, out.high + room};
}

/// A parameter's axis: numbers, or names in the order in which they first come.
struct Axis {
  bool is_number = true;
  bool is_logarithmic = false;  ///< positive numbers, most of them near the least
  Range range;
  std::vector<std::string> names;

  [[nodiscard]] double share(const std::string& value) const {
    const double number = std::strtod(value.c_str(), nullptr);
    if (is_logarithmic) return Range{std::log(range.low), std::log(range.high)}.share(std::log(number));
    if (is_number) return range.share(number);
    const auto at = std::ranges::find(names, value) - names.begin();
    return names.size() > 1 ? static_cast<double>(at) / static_cast<double>(names.size() - 1) : 0.5;
  }
};

Axis axis_of(const SweepResults& results, std::size_t column) {
  Axis axis;
  bool first = true;
  for (const Trial& trial : results.record.trials) {
    const std::string& value = trial[column];
    char* end = nullptr;
    const double number = std::strtod(value.c_str(), &end);
    if (value.empty() || *end != '\0' || !std::isfinite(number)) axis.is_number = false;
    axis.range.low = first ? number : std::min(axis.range.low, number);
    axis.range.high = first ? number : std::max(axis.range.high, number);
    first = false;
    if (std::ranges::find(axis.names, value) == axis.names.end()) axis.names.push_back(value);
  }
  std::vector<double> numbers;
  for (const Trial& trial : results.record.trials) numbers.push_back(std::strtod(trial[column].c_str(), nullptr));
  std::ranges::sort(numbers);
  axis.is_logarithmic = axis.is_number && axis.range.low > 0 && axis.range.share(numbers[numbers.size() / 2]) < 0.2;
  return axis;
}

std::string_view colour_of(const SweepResults& results, std::size_t i) {
  if (results.best == i) return good_colour;
  return results.trials[i].state == "COMPLETED" || results.trials[i].state == "RUNNING" ? trial_colour : bad_colour;
}

std::string tooltip(const SweepResults& results, std::size_t i) {
  std::string out =
      concat({"trial ", std::to_string(results.trials[i].number), ", ", text::to_lower(results.trials[i].state)});
  for (std::size_t k = 0; k < results.record.names.size(); ++k)
    out += concat({", ", results.record.names[k], "=", results.record.trials[i][k]});
  if (results.trials[i].metric) out += concat({": ", number_label(*results.trials[i].metric)});
  return out;
}

void draw_metrics(tools::Svg& svg, const SweepResults& results, const Range& range) {
  constexpr int top = 104;
  constexpr int bottom = 310;
  const auto y_of = [&](double value) { return bottom - range.share(value) * (bottom - top); };
  const double step = static_cast<double>(right - left) / static_cast<double>(results.trials.size() + 1);
  for (int i = 0; i <= 4; ++i) {
    const double value = range.low + (range.high - range.low) * i / 4;
    const std::vector<tools::Point> line = {{left, y_of(value)}, {right, y_of(value)}};
    svg.line(line, {.colour = tools::grid_ink});
    svg.text(left - 8, static_cast<int>(y_of(value)) + 4, number_label(value),
             {.size = 11, .colour = tools::pale_ink, .anchor = tools::TextStyle::Anchor::end});
  }
  svg.text(
      left, top - 14,
      concat({results.record.metric, " of each trial (", results.record.maximize ? "greater" : "less", " is better)"}),
      {.size = 12, .colour = tools::pale_ink});
  std::vector<tools::Point> front;  // the best so far
  std::optional<double> best;
  for (std::size_t i = 0; i < results.trials.size(); ++i) {
    const double x = left + step * static_cast<double>(i + 1);
    const auto& metric = results.trials[i].metric;
    if (metric && (!best || (results.record.maximize ? *metric > *best : *metric < *best))) best = metric;
    if (best) {
      if (!front.empty()) front.push_back({x, front.back().y});
      front.push_back({x, y_of(*best)});
    }
  }
  svg.line(front, {.colour = good_colour, .width = 1.2, .dashed = true});
  for (std::size_t i = 0; i < results.trials.size(); ++i) {
    if (!results.trials[i].metric) continue;
    svg.open_group(tooltip(results, i));
    svg.dot({left + step * static_cast<double>(i + 1), y_of(*results.trials[i].metric)}, results.best == i ? 6 : 4,
            colour_of(results, i));
    svg.close_group();
  }
  const std::size_t every = std::max<std::size_t>(1, results.trials.size() / 10);
  for (std::size_t i = 0; i < results.trials.size(); i += every) {
    svg.text(static_cast<int>(left + step * static_cast<double>(i + 1)), bottom + 18, std::to_string(i + 1),
             {.size = 11, .colour = tools::pale_ink, .anchor = tools::TextStyle::Anchor::middle});
  }
}

void draw_axes(tools::Svg& svg, const SweepResults& results, const Range& range) {
  constexpr int top = 396;
  constexpr int bottom = height - 40;
  const std::size_t count = results.record.names.size();
  const auto x_of = [&](std::size_t column) {
    return left + static_cast<double>(right - left) * static_cast<double>(column) / static_cast<double>(count);
  };
  const auto y_of = [&](double share) { return bottom - share * (bottom - top); };
  std::vector<Axis> axes;
  for (std::size_t k = 0; k < count; ++k) axes.push_back(axis_of(results, k));
  const auto draw_trial = [&](std::size_t i) {
    if (!results.trials[i].metric) return;
    std::vector<tools::Point> points;
    for (std::size_t k = 0; k < count; ++k)
      points.push_back({x_of(k), y_of(axes[k].share(results.record.trials[i][k]))});
    points.push_back({static_cast<double>(right), y_of(range.share(*results.trials[i].metric))});
    svg.open_group(tooltip(results, i));
    svg.line(points, {.colour = colour_of(results, i), .width = results.best == i ? 2.6 : 0.8});
    svg.close_group();
  };
  for (std::size_t i = 0; i < results.trials.size(); ++i) {
    if (results.best != i) draw_trial(i);
  }
  if (results.best) draw_trial(*results.best);
  for (std::size_t k = 0; k <= count; ++k) {
    const double x = k == count ? right : x_of(k);
    const std::vector<tools::Point> line = {{x, top}, {x, bottom}};
    svg.line(line, {.colour = tools::ink});
    const auto anchor = k == count ? tools::TextStyle::Anchor::end
                        : k == 0   ? tools::TextStyle::Anchor::start
                                   : tools::TextStyle::Anchor::middle;
    svg.text(static_cast<int>(x), top - 24, k == count ? results.record.metric : results.record.names[k],
             {.size = 12, .bold = true, .anchor = anchor});
    const bool names = k < count && !axes[k].is_number;
    for (std::size_t name = 1; names && axes[k].names.size() <= 6 && name + 1 < axes[k].names.size(); ++name) {
      svg.text(static_cast<int>(x) + 6, static_cast<int>(y_of(axes[k].share(axes[k].names[name]))) - 4,
               axes[k].names[name].substr(0, 18), {.size = 11, .colour = tools::pale_ink});
    }
    const std::string low = k == count ? number_label(range.low)
                            : names    ? axes[k].names.front()
                                       : number_label(axes[k].range.low);
    const std::string high = k == count ? number_label(range.high)
                             : names    ? axes[k].names.back()
                                        : number_label(axes[k].range.high);
    svg.text(static_cast<int>(x), bottom + 16, low.substr(0, 18),
             {.size = 11, .colour = tools::pale_ink, .anchor = anchor});
    svg.text(static_cast<int>(x), top - 8, high.substr(0, 18),
             {.size = 11, .colour = tools::pale_ink, .anchor = anchor});
  }
}

}  // namespace

std::string sweep_to_svg(const Run& run, const SweepResults& results) {
  const Range range = metric_range(results);
  tools::Svg svg;
  svg.text(24, 32, run.name, {.size = 17, .bold = true});
  const std::string summary = summary_of(results);
  const auto cut = summary.find("; ");
  svg.text(24, 50, summary.substr(0, cut), {.size = 12, .colour = tools::pale_ink});
  if (cut != std::string::npos) svg.text(24, 66, summary.substr(cut + 2), {.size = 12, .colour = tools::pale_ink});
  draw_metrics(svg, results, range);
  draw_axes(svg, results, range);
  return svg.finish(width, height, concat({"The trials of ", run.name}), tools::Scheme::light_and_dark);
}

}  // namespace amldist::run
