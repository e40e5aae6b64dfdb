#include "shared/svg.hpp"

#include <array>
#include <cmath>
#include <cstdio>

#include "base/text/text.hpp"

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

/// Two decimals, with a dot in any locale; what is not a number becomes 0.
std::string decimal(double value) {
  constexpr double most = 1e6;
  const auto hundredths = std::isfinite(value) ? std::llround(std::fmin(std::fmax(value, -most), most) * 100) : 0;
  std::array<char, 32> digits{};
  std::snprintf(digits.data(), digits.size(), "%s%lld.%02lld", hundredths < 0 ? "-" : "", std::llabs(hundredths) / 100,
                std::llabs(hundredths) % 100);
  return digits.data();
}
std::string attribute(std::string_view name, double value) { return concat({" ", name, "=\"", decimal(value), "\""}); }

std::string attributes_of(const LineStyle& style) {
  return concat({attribute("fill", "none"), attribute("stroke", style.colour), attribute("stroke-width", style.width),
                 style.dashed ? attribute("stroke-dasharray", "5 4") : std::string()});
}

struct Shade {
  std::string_view light;
  std::string_view dark;
};

/// Colours that need another shade on a dark page; those missing here are visible on both.
constexpr std::array<Shade, 7> shades = {{{"#1f2933", "#e6ebf1"},
                                          {"#52606d", "#a9b5c1"},
                                          {"#dde3ea", "#2c3843"},
                                          {"#f4f6f8", "#1b2530"},
                                          {"#b3261e", "#f0716a"},
                                          {"#fbdad7", "#43201e"},
                                          {"#4a7fb5", "#5b93cc"}}};
constexpr std::string_view fonts = "DejaVu Sans, Verdana, Arial, sans-serif";
constexpr Shade page = {"#ffffff", "#11181f"};

std::string style_for(Scheme scheme) {
  if (scheme == Scheme::light) return {};
  std::string rules;
  for (const Shade& shade : shades) {
    for (const std::string_view paint : {"fill", "stroke"})
      rules += concat({"[", paint, "=\"", shade.light, "\"] { ", paint, ": ", shade.dark, " }\n"});
  }
  return concat(
      {"<style>\n@media (prefers-color-scheme: dark) {\n.page { fill: ", page.dark, " }\n", rules, "}\n</style>\n"});
}

std::string_view word_for(TextStyle::Anchor anchor) { return anchor == TextStyle::Anchor::middle ? "middle" : "end"; }

}  // namespace

void Svg::rectangle(const Box& box, std::string_view fill, std::string_view stroke) {
  body_ += concat({"<rect", attribute("x", box.x), attribute("y", box.y), attribute("width", box.width),
                   attribute("height", box.height), attribute("rx", 5), attribute("fill", fill)});
  if (!stroke.empty()) body_ += attribute("stroke", stroke);
  body_ += "/>\n";
}

void Svg::text(int x, int y, std::string_view words, const TextStyle& style) {
  body_ += concat({"<text", attribute("x", x), attribute("y", y), attribute("font-size", style.size),
                   attribute("fill", style.colour)});
  if (style.bold) body_ += attribute("font-weight", "bold");
  if (style.anchor != TextStyle::Anchor::start) body_ += attribute("text-anchor", word_for(style.anchor));
  body_ += concat({">", escaped(words), "</text>\n"});
}

void Svg::bar(Point corner, double width, double height, std::string_view fill) {
  body_ += concat({"<rect", attribute("x", corner.x), attribute("y", corner.y), attribute("width", width),
                   attribute("height", height), attribute("fill", fill), "/>\n"});
}

void Svg::frame(Point corner, double width, double height, const LineStyle& style) {
  body_ += concat({"<rect", attribute("x", corner.x), attribute("y", corner.y), attribute("width", width),
                   attribute("height", height), attributes_of(style), "/>\n"});
}

void Svg::line(std::span<const Point> points, const LineStyle& style) {
  std::string path;
  for (const Point& point : points) path += concat({path.empty() ? "" : " ", decimal(point.x), ",", decimal(point.y)});
  body_ += concat({"<polyline", attribute("points", path), attributes_of(style), "/>\n"});
}

void Svg::dot(Point centre, double radius, std::string_view fill) {
  body_ += concat({"<circle", attribute("cx", centre.x), attribute("cy", centre.y), attribute("r", radius),
                   attribute("fill", fill), "/>\n"});
}

void Svg::open_group(std::string_view tooltip) { body_ += concat({"<g><title>", escaped(tooltip), "</title>\n"}); }

void Svg::close_group() { body_ += "</g>\n"; }

std::string Svg::finish(int width, int height, std::string_view title, Scheme scheme) const {
  const std::string w = std::to_string(width);
  const std::string h = std::to_string(height);
  const std::string size = concat({" width=\"", w, "\" height=\"", h, "\""});
  const std::string head =
      concat({"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\"", size,
              " viewBox=\"0 0 ", w, " ", h, "\" role=\"img\" font-family=\"", fonts, "\">\n"});
  return concat({head, "<title>", escaped(title), "</title>\n", style_for(scheme), "<rect class=\"page\"", size,
                 attribute("fill", page.light), "/>\n", body_, "</svg>\n"});
}

}  // namespace amldist::tools
