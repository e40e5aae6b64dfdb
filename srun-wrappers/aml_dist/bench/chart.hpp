// A rectangle with two axes, curves through measured points, and words at them.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "shared/svg.hpp"

namespace amldist::tools {

/// A page with two charts beside each other, in pixels.
inline constexpr int page_width = 1080;
inline constexpr int page_height = 520;
inline constexpr int chart_width = 420;
inline constexpr int chart_height = 280;
inline constexpr int chart_top = 134;

struct Mark {
  double value;
  std::string words;
};

struct Axis {
  std::string title;  ///< with its unit
  double least = 0;
  double most = 1;
  std::vector<Mark> marks;
  bool logarithmic = true;
};

struct Curve {
  std::string name;
  std::string_view colour;
  std::vector<Point> points;        ///< in the axes' units
  std::vector<std::string> labels;  ///< one for each point, beside it; may be empty
  bool is_ideal = false;            ///< dashed and without dots: not a measurement
};

struct Chart {
  Box area;  ///< of the curves; titles and marks are around it
  std::string title;
  Axis x;
  Axis y;
  std::vector<Curve> curves;
};

/// Colours of curves in their order: one for each, then again from the start.
[[nodiscard]] std::string_view curve_colour(std::size_t index);

/// Decades around values that are all positive: at least one, at most about seven marks.
[[nodiscard]] Axis decades(std::string title, double least, double most);

/// From 0 to a round number above `most`, in about five steps.
[[nodiscard]] Axis from_zero(std::string title, double most);

/// At most four significant digits, never an exponent: "0.00001", "1500000".
[[nodiscard]] std::string plain_number(double value);

void draw_chart(Svg& svg, const Chart& chart);

/// A line of coloured boxes (dashes for an ideal) with the curves' names.
void draw_legend(Svg& svg, std::span<const Curve> curves, int x, int y);

}  // namespace amldist::tools
