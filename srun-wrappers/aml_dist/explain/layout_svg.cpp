#include "aml_dist/explain/layout_svg.hpp"

#include <algorithm>
#include <array>

#include "base/text/hex.hpp"
#include "base/text/text.hpp"
#include "shared/svg.hpp"

namespace amldist::tools {
namespace {

using text::concat;
using Anchor = TextStyle::Anchor;

constexpr std::uint32_t most_boxes = 16;
constexpr std::uint32_t most_crowded_nodes = 8;  // with more than 16 tasks on a node
constexpr std::uint32_t most_cells = 32;         // of a node
constexpr int layout_margin = 24;
constexpr int cell_gap = 8;  // between cells
constexpr int box_gap = 18;  // between nodes
constexpr int padding = 12;  // in a node's box
constexpr int cell_width = 68;
constexpr int cell_height = 44;
constexpr int node_head = 48;
constexpr int layout_head = 88;
constexpr int layout_foot = 76;
constexpr int widest_page = 1400;

constexpr std::string_view master_fill = "#b3261e";

/// How many nodes and cells fit.
struct Grid {
  std::uint32_t nodes;  ///< drawn
  std::uint32_t cells;  ///< of the fullest node, drawn
  int columns;          ///< cells in a row
  int box_width;
  int box_height;
  int boxes_in_row;

  [[nodiscard]] int width() const {
    constexpr int caption_width = 640;  // even one small node leaves room for the captions
    return std::max(caption_width, 2 * layout_margin + boxes_in_row * (box_width + box_gap) - box_gap);
  }
  [[nodiscard]] int height() const {
    const int rows = (static_cast<int>(nodes) + boxes_in_row - 1) / boxes_in_row;
    return layout_head + rows * (box_height + box_gap) - box_gap + layout_foot;
  }
};

Grid plan_grid(const launch::TaskMap& map) {
  Grid grid{};
  grid.cells = std::min(map.most_tasks_on_a_node(), most_cells);
  const bool crowded = grid.cells > 16;
  grid.nodes = std::min(map.nodes(), crowded ? most_crowded_nodes : most_boxes);
  grid.columns = std::clamp(static_cast<int>(grid.cells), 2, crowded ? 8 : 4);
  const int rows = (static_cast<int>(grid.cells) + grid.columns - 1) / grid.columns;
  const bool cut = map.most_tasks_on_a_node() > most_cells;  // room for a line about the rest
  grid.box_width = 2 * padding + grid.columns * (cell_width + cell_gap) - cell_gap;
  grid.box_height = node_head + rows * (cell_height + cell_gap) - cell_gap + padding + (cut ? 20 : 0);
  const int fitting = (widest_page - 2 * layout_margin + box_gap) / (grid.box_width + box_gap);
  // Rows of equal length read better than a full one with one box below it.
  const int nodes = static_cast<int>(grid.nodes);
  const int most = std::clamp(fitting, 1, 4);
  const int box_rows = (nodes + most - 1) / most;
  grid.boxes_in_row = (nodes + box_rows - 1) / box_rows;
  return grid;
}

/// `words`, cut to `width` at this font size, by the width of a wide letter.
std::string fitted(std::string words, int width, int size) {
  const auto fits = static_cast<std::size_t>(std::max(4, width * 10 / (size * 7)));
  if (words.size() > fits) words = words.substr(0, fits - 3) + "...";
  return words;
}

/// From pale to strong with the rank, to show the order in which ranks were distributed.
std::string shade(std::uint32_t rank, std::uint32_t size) {
  constexpr std::array<int, 3> first = {0xe6, 0xf1, 0xfb};
  constexpr std::array<int, 3> last = {0x8b, 0xb8, 0xe8};
  const double part = size > 1 ? static_cast<double>(rank) / (size - 1) : 0;
  std::string colour = "#";
  for (std::size_t i = 0; i < first.size(); ++i) {
    append_hex(colour, static_cast<unsigned char>(first[i] + static_cast<int>((last[i] - first[i]) * part)));
  }
  return colour;
}

/// Font size at which the largest rank fits its cell; one for the whole picture.
int rank_size(std::uint32_t tasks) {
  constexpr std::array<int, 4> by_digits = {14, 14, 12, 11};
  const std::size_t digits = std::to_string(tasks - 1).size();
  return digits <= by_digits.size() ? by_digits[digits - 1] : 9;
}

void draw_cell(Svg& svg, const launch::StepPlan& plan, std::uint32_t rank, std::uint32_t local, int x, int y) {
  const bool master = rank == 0;
  const bool launcher = plan.spec.launch == launch::Launch::per_node;
  const std::string_view colour = master ? "#ffffff" : ink;
  const std::string number = std::to_string(rank);
  const std::string line = concat({launcher ? "task " : "rank ", number});
  svg.rectangle({x, y, cell_width, cell_height},
                master ? std::string(master_fill) : shade(rank, plan.placement.map.size()));
  svg.text(x + cell_width / 2, y + 19, line, {rank_size(plan.placement.map.size()), colour, true, Anchor::middle});
  svg.text(x + cell_width / 2, y + 35, launcher ? std::string("launcher") : concat({"local ", std::to_string(local)}),
           {11, colour, false, Anchor::middle});
}

void draw_node(Svg& svg, const launch::StepPlan& plan, const Grid& grid, std::uint32_t node_rank, int x, int y) {
  const launch::TaskMap& map = plan.placement.map;
  const std::uint32_t node = map.node_at(node_rank);
  const std::string host = plan.placement.hosts.at(node);
  const auto ranks = map.ranks_on(node);
  svg.open_group(concat({host, ": ", text::count(ranks.size(), "task")}));
  svg.rectangle({x, y, grid.box_width, grid.box_height}, "#f7f9fb", "#9aa5b1");
  svg.text(x + padding, y + 21, fitted(host, grid.box_width - 2 * padding, 15), {15, ink, true});
  svg.text(x + padding, y + 38,
           concat({"node rank ", std::to_string(node_rank), ", ", text::count(ranks.size(), "task")}), {11, pale_ink});
  const auto drawn = std::min<std::uint32_t>(static_cast<std::uint32_t>(ranks.size()), most_cells);
  for (std::uint32_t local = 0; local < drawn; ++local) {
    const int column = static_cast<int>(local) % grid.columns;
    const int row = static_cast<int>(local) / grid.columns;
    draw_cell(svg, plan, ranks[local], local, x + padding + column * (cell_width + cell_gap),
              y + node_head + row * (cell_height + cell_gap));
  }
  if (drawn < ranks.size()) {
    svg.text(
        x + padding, y + grid.box_height - 12,
        concat({"and ", text::count(ranks.size() - drawn, "more task"), ", up to rank ", std::to_string(ranks.back())}),
        {11, pale_ink});
  }
  svg.close_group();
}

std::string title_of(const launch::StepPlan& plan) {
  const launch::TaskMap& map = plan.placement.map;
  return concat({to_string(plan.spec.kind),
                 plan.spec.launch == launch::Launch::per_node ? ", one launcher per node" : "", ": ",
                 text::count(map.size(), "task"), " on ", text::count(map.nodes(), "node")});
}

void draw_head(Svg& svg, const launch::StepPlan& plan, int width) {
  const int room = width - 2 * layout_margin;
  svg.text(layout_margin, 38, fitted(title_of(plan), room, 20), {20, ink, true});
  svg.text(
      layout_margin, 66,
      fitted(concat({"MASTER_ADDR:MASTER_PORT = ", plan.rendezvous.address, ":", std::to_string(plan.rendezvous.port)}),
             room, 14),
      {14, pale_ink});
}

/// The legend of the shades.
void draw_scale(Svg& svg, std::uint32_t size, int x, int y) {
  constexpr std::uint32_t steps = 8;
  constexpr int step_width = 12;
  for (std::uint32_t i = 0; i < steps; ++i) {
    svg.rectangle({x + static_cast<int>(i) * step_width, y - 12, 14, 14}, shade(i, steps));
  }
  svg.text(x + static_cast<int>(steps) * step_width + 10, y, concat({"the others, up to ", std::to_string(size - 1)}),
           {12, ink});
}

void draw_foot(Svg& svg, const launch::StepPlan& plan, const Grid& grid, int width, int height) {
  const launch::TaskMap& map = plan.placement.map;
  const int room = width - 2 * layout_margin;
  const int y = height - layout_foot + 30;
  svg.rectangle({layout_margin, y - 12, 14, 14}, master_fill);
  svg.text(layout_margin + 22, y,
           concat({plan.spec.launch == launch::Launch::per_node ? "task" : "rank", " 0: its host is the master"}),
           {12, ink});
  if (map.size() > 1) draw_scale(svg, map.size(), layout_margin + 250, y);
  const std::string left_out =
      grid.nodes < map.nodes()
          ? concat({std::to_string(grid.nodes), " of ", std::to_string(map.nodes()), " nodes are shown. "})
          : std::string();
  svg.text(layout_margin, y + 26,
           fitted(concat({left_out, "Layout (", to_string(plan.placement.provenance), "): ", plan.placement.source,
                          ", ", map.to_string()}),
                  room, 12),
           {12, pale_ink});
}

}  // namespace

std::string draw_layout(const launch::StepPlan& plan) {
  const Grid grid = plan_grid(plan.placement.map);
  Svg svg;
  draw_head(svg, plan, grid.width());
  for (std::uint32_t i = 0; i < grid.nodes; ++i) {
    const int column = static_cast<int>(i) % grid.boxes_in_row;
    const int row = static_cast<int>(i) / grid.boxes_in_row;
    draw_node(svg, plan, grid, i, layout_margin + column * (grid.box_width + box_gap),
              layout_head + row * (grid.box_height + box_gap));
  }
  draw_foot(svg, plan, grid, grid.width(), grid.height());
  return svg.finish(grid.width(), grid.height(), title_of(plan));
}

}  // namespace amldist::tools
