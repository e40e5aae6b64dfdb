// Just enough SVG for boxes with text in them, bars and curves.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace amldist::tools {

/// Colours that all pictures share; a dark page has its own shade of each (svg.cpp).
inline constexpr std::string_view ink = "#1f2933";
inline constexpr std::string_view pale_ink = "#52606d";
inline constexpr std::string_view grid_ink = "#dde3ea";

struct Box {
  int x;
  int y;
  int width;
  int height;
};

struct Point {
  double x;
  double y;
};

struct LineStyle {
  std::string_view colour = "#1f2933";
  double width = 1;
  bool dashed = false;
};

struct TextStyle {
  int size = 13;
  std::string_view colour = "#1f2933";
  bool bold = false;
  enum class Anchor { start, middle, end } anchor = Anchor::start;
};

/// Whether a picture has other colours where the viewer prefers a dark page.
enum class Scheme { light, light_and_dark };

/// A document that grows by shapes; later ones cover earlier ones. Text is escaped here and nowhere else.
class Svg {
 public:
  /// A rectangle with round corners; `stroke` empty: without a border.
  void rectangle(const Box& box, std::string_view fill, std::string_view stroke = {});
  /// A rectangle to a fraction of a unit, with sharp corners.
  void bar(Point corner, double width, double height, std::string_view fill);
  /// The same with a border only.
  void frame(Point corner, double width, double height, const LineStyle& style);
  /// A line through points, in their order.
  void line(std::span<const Point> points, const LineStyle& style);
  void dot(Point centre, double radius, std::string_view fill);
  /// One line of text with its base line at `y`.
  void text(int x, int y, std::string_view words, const TextStyle& style = {});
  /// The tooltip for the shapes between open_group() and close_group().
  void open_group(std::string_view tooltip);
  void close_group();

  /// The document on a background of its own, with a title for screen readers.
  [[nodiscard]] std::string finish(int width, int height, std::string_view title, Scheme scheme = Scheme::light) const;

 private:
  std::string body_;
};

}  // namespace amldist::tools
