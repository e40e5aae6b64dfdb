// Just enough SVG for boxes with text in them.
#pragma once

#include <string>
#include <string_view>

namespace amldist::tools {

struct Box {
  int x;
  int y;
  int width;
  int height;
};

struct TextStyle {
  int size = 13;
  std::string_view colour = "#1f2933";
  bool bold = false;
  enum class Anchor { start, middle, end } anchor = Anchor::start;
};

/// A document that grows by shapes; later ones cover earlier ones. Text is escaped here and nowhere else.
class Svg {
 public:
  /// A rectangle with round corners; `stroke` empty: without a border.
  void rectangle(const Box& box, std::string_view fill, std::string_view stroke = {});
  /// A straight line, `width` pixels wide.
  void line(int x1, int y1, int x2, int y2, std::string_view colour, int width = 2);
  /// One line of text with its base line at `y`.
  void text(int x, int y, std::string_view words, const TextStyle& style = {});
  /// What viewers show when the mouse rests on the shapes between open_group() and close_group().
  void open_group(std::string_view tooltip);
  void close_group();

  /// The document on a white background, with a title for screen readers.
  [[nodiscard]] std::string finish(int width, int height, std::string_view title) const;

 private:
  std::string body_;
};

}  // namespace amldist::tools
