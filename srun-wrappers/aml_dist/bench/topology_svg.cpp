#include <algorithm>
#include <array>
#include <cmath>

#include "aml_dist/bench/bench_topology.hpp"
#include "aml_dist/common/table.hpp"
#include "base/text/text.hpp"
#include "shared/svg.hpp"

namespace amldist::tools {
namespace {

using text::concat;

/// From near to far; all pale enough for words that are dark on a dark page too.
constexpr std::array<std::string_view, 6> shades = {"#eaf3fb", "#cfe3f5", "#b3d2ee", "#fbe3b8", "#f8c98c", "#f4ab7c"};
constexpr std::string_view word_in_cell = "#1f2932";
constexpr int left = 150;
constexpr int top = 118;

struct Range {
  double least = 0;
  double most = 0;
};

Range range_of(const NodeTopology& topology) {
  Range range;
  for (std::size_t a = 0; a < topology.latency_ns.size(); ++a) {
    for (std::size_t b = a + 1; b < topology.latency_ns.size(); ++b) {
      const double each = topology.latency_ns[a][b];
      range.least = range.least == 0 ? each : std::min(range.least, each);
      range.most = std::max(range.most, each);
    }
  }
  return range;
}

/// By the logarithm: twice as far is as many shades everywhere. What differs by less than a tenth has one shade.
std::string_view shade_of(double latency, const Range& range) {
  if (range.least <= 0 || range.most < range.least * 1.1) return shades.front();
  const double part = std::log(latency / range.least) / std::log(range.most / range.least);
  const auto index = static_cast<std::size_t>(part * static_cast<double>(shades.size()));
  return shades[std::min(index, shades.size() - 1)];
}

std::string short_time(double ns) { return ns < 10000 ? decimal(ns, 0) : decimal(ns / 1000, 0) + "k"; }

int cell_of(std::size_t ranks) { return ranks <= 20 ? 44 : std::max(6, 880 / static_cast<int>(ranks)); }

void draw_cells(Svg& svg, const NodeTopology& topology, int cell) {
  const Range range = range_of(topology);
  for (std::size_t a = 0; a < topology.ranks.size(); ++a) {
    for (std::size_t b = 0; b < topology.ranks.size(); ++b) {
      const int x = left + static_cast<int>(b) * cell;
      const int y = top + static_cast<int>(a) * cell;
      const double each = topology.latency_ns[a][b];
      svg.open_group(a == b ? concat({"rank ", std::to_string(a)})
                            : concat({"rank ", std::to_string(a), " and rank ", std::to_string(b), ": ",
                                      decimal(each, 0), " ns, ", decimal(topology.bandwidth_gbs[a][b], 2), " GB/s"}));
      svg.bar({static_cast<double>(x), static_cast<double>(y)}, cell - 1, cell - 1,
              a == b ? grid_ink : shade_of(each, range));
      if (a != b && cell >= 40)
        svg.text(x + cell / 2, y + cell / 2 + 4, short_time(each),
                 {12, word_in_cell, false, TextStyle::Anchor::middle});
      svg.close_group();
    }
  }
}

void draw_names(Svg& svg, const NodeTopology& topology, int cell) {
  const std::size_t every = cell >= 14 ? 1 : 8;
  for (std::size_t rank = 0; rank < topology.ranks.size(); rank += every) {
    const RankPlace& each = topology.ranks[rank];
    const int middle = static_cast<int>(rank) * cell + cell / 2 + 4;
    svg.text(left - 8, top + middle,
             concat({"rank ", std::to_string(rank), ", processor ", std::to_string(each.processor)}),
             {11, pale_ink, false, TextStyle::Anchor::end});
    svg.text(left + middle - 4, top - 8, std::to_string(rank), {11, pale_ink, false, TextStyle::Anchor::middle});
  }
}

}  // namespace

std::string draw_topology(const NodeTopology& topology) {
  const int cell = cell_of(topology.ranks.size());
  const int side = cell * static_cast<int>(topology.ranks.size());
  Svg svg;
  const std::string title = concat({"How far ", text::count(topology.ranks.size(), "rank"), " are from each other"});
  svg.text(24, 38, title, {20, ink, true});
  svg.text(24, 64, "Nanoseconds of a message of 4 bytes, one way", {14, pale_ink});
  svg.text(24, 84, concat({text::count(topology.groups.size(), "group"), " of ranks that are near each other"}),
           {14, pale_ink});
  draw_names(svg, topology, cell);
  draw_cells(svg, topology, cell);
  return svg.finish(std::max(left + side + 24, 520), top + side + 24, title, Scheme::light_and_dark);
}

}  // namespace amldist::tools
