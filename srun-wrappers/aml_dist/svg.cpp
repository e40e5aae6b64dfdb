#include "aml_dist/svg.hpp"

#include "core/text.hpp"

namespace amldist::tools {
namespace {

using text::concat;

/// XML's five special characters; control characters, which XML forbids, become '?'.
std::string escaped(std::string_view words) {
  std::string out;
  for (const char c : words) {
    if (c == '&') out += "&amp;";
    else if (c == '<') out += "&lt;";
    else if (c == '>') out += "&gt;";
    else if (c == '"') out += "&quot;";
    else if (c == '\'') out += "&apos;";
    else out += (c >= 0 && c < ' ') || c == 0x7f ? '?' : c;
  }
  return out;
}

std::string attribute(std::string_view name, int value) {
  return concat({" ", name, "=\"", std::to_string(value), "\""});
}
std::string attribute(std::string_view name, std::string_view value) {
  return concat({" ", name, "=\"", escaped(value), "\""});
}

std::string_view word_for(TextStyle::Anchor anchor) { return anchor == TextStyle::Anchor::middle ? "middle" : "end"; }

}  // namespace

void Svg::rectangle(const Box& box, std::string_view fill, std::string_view stroke) {
  body_ += concat({"<rect", attribute("x", box.x), attribute("y", box.y), attribute("width", box.width),
                   attribute("height", box.height), attribute("rx", 5), attribute("fill", fill)});
  if (!stroke.empty()) body_ += attribute("stroke", stroke);
  body_ += "/>\n";
}

void Svg::line(int x1, int y1, int x2, int y2, std::string_view colour, int width) {
  body_ += concat({"<line", attribute("x1", x1), attribute("y1", y1), attribute("x2", x2), attribute("y2", y2),
                   attribute("stroke", colour), attribute("stroke-width", width), "/>\n"});
}

void Svg::text(int x, int y, std::string_view words, const TextStyle& style) {
  body_ += concat({"<text", attribute("x", x), attribute("y", y), attribute("font-size", style.size),
                   attribute("fill", style.colour)});
  if (style.bold) body_ += attribute("font-weight", "bold");
  if (style.anchor != TextStyle::Anchor::start) body_ += attribute("text-anchor", word_for(style.anchor));
  body_ += concat({">", escaped(words), "</text>\n"});
}

void Svg::open_group(std::string_view tooltip) { body_ += concat({"<g><title>", escaped(tooltip), "</title>\n"}); }

void Svg::close_group() { body_ += "</g>\n"; }

std::string Svg::finish(int width, int height, std::string_view title) const {
  const std::string w = std::to_string(width);
  const std::string h = std::to_string(height);
  return concat({"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", w,
                 "\" height=\"", h, "\" viewBox=\"0 0 ", w, " ", h,
                 "\" role=\"img\" font-family=\"DejaVu Sans, Verdana, Arial, sans-serif\">\n<title>", escaped(title),
                 "</title>\n<rect width=\"", w, "\" height=\"", h, "\" fill=\"#ffffff\"/>\n", body_, "</svg>\n"});
}

}  // namespace amldist::tools
