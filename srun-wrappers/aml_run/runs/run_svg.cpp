#include <algorithm>

#include "aml_run/runs/run_view.hpp"
#include "base/text/text.hpp"
#include "shared/svg.hpp"

namespace amldist::run {
namespace {

using text::concat;

constexpr int box_height = 46;
constexpr int row_height = 66;
constexpr int gap = 56;
constexpr int margin = 24;
constexpr int title_height = 48;

std::string_view fill_of(const WorkState& work) {
  if (work.good()) return "#d7f0dd";
  if (work.state == "RUNNING" || work.state == "COMPLETING") return "#d6e8fb";
  if (work.state == "CANCELLED" || work.state == "STOPPED") return "#eceff2";
  return work.ended() ? "#fbdcdc" : "#ffffff";
}

/// About what a text is wide, in pixels.
int pixels_of(std::string_view text) { return static_cast<int>(text.size()) * 8; }

struct Layout {
  std::vector<std::size_t> columns;
  std::vector<int> left;  ///< of each column
  std::vector<int> box_widths;
  std::vector<int> top;  ///< of each job
  int width = 0;
  int height = 0;
};

Layout lay_out(const Run& run) {
  Layout out;
  out.columns = columns_of(run);
  std::vector<int> rows;
  for (std::size_t i = 0; i < run.jobs.size(); ++i) {
    const std::size_t column = out.columns[i];
    if (column >= rows.size()) {
      rows.resize(column + 1, 0);
      out.box_widths.resize(column + 1, 130);
    }
    out.top.push_back(title_height + margin + rows[column] * row_height);
    ++rows[column];
    out.box_widths[column] = std::max(out.box_widths[column], pixels_of(run.jobs[i].name) + 28);
  }
  int x = margin;
  for (const int width : out.box_widths) {
    out.left.push_back(x);
    x += width + gap;
  }
  const int most = rows.empty() ? 1 : *std::ranges::max_element(rows);
  // Shorter columns stand in the middle of the tallest one.
  for (std::size_t i = 0; i < run.jobs.size(); ++i) out.top[i] += (most - rows[out.columns[i]]) * row_height / 2;
  out.width = std::max(x - gap + margin, 420);
  out.height = title_height + 2 * margin + most * row_height;
  return out;
}

/// A curve from the right side of one box to the left side of another.
void connect(tools::Svg& svg, tools::Point from, tools::Point to) {
  constexpr int pieces = 16;
  std::vector<tools::Point> points;
  for (int i = 0; i <= pieces; ++i) {
    const double t = static_cast<double>(i) / pieces;
    const double smooth = t * t * (3 - 2 * t);
    points.push_back({from.x + (to.x - from.x) * t, from.y + (to.y - from.y) * smooth});
  }
  svg.line(points, {.colour = tools::pale_ink, .width = 1.4});
  const std::vector<tools::Point> head = {{to.x - 7, to.y - 4}, {to.x, to.y}, {to.x - 7, to.y + 4}};
  svg.line(head, {.colour = tools::pale_ink, .width = 1.4});
}

}  // namespace

std::string run_to_svg(const Run& run, const RunState& state) {
  const Layout layout = lay_out(run);
  tools::Svg svg;
  svg.text(margin, margin + 12, concat({run.name, ": ", word_for(state)}), {.size = 17, .bold = true});
  for (std::size_t i = 0; i < run.jobs.size(); ++i) {
    for (const std::string& need : run.jobs[i].needs) {
      const auto before = std::ranges::find(run.jobs, need, &RunJob::name);
      if (before == run.jobs.end()) continue;
      const auto from = static_cast<std::size_t>(before - run.jobs.begin());
      const int right = layout.left[layout.columns[from]] + layout.box_widths[layout.columns[from]];
      connect(svg, {static_cast<double>(right), layout.top[from] + box_height / 2.0},
              {static_cast<double>(layout.left[layout.columns[i]]), layout.top[i] + box_height / 2.0});
    }
  }
  for (std::size_t i = 0; i < run.jobs.size(); ++i) {
    const std::size_t column = layout.columns[i];
    const WorkState& work = state.jobs[i].whole;
    const int x = layout.left[column];
    svg.open_group(concat({run.jobs[i].name, ": ", work.state, work.job_id.empty() ? "" : ", job ", work.job_id}));
    svg.rectangle({x, layout.top[i], layout.box_widths[column], box_height}, fill_of(work), tools::pale_ink);
    svg.text(x + 12, layout.top[i] + 19, run.jobs[i].name, {.size = 13, .bold = true});
    std::string below = text::to_lower(work.state);
    if (work.ended() && !work.good() && work.exit_status != 0 && work.state == "FAILED")
      below += concat({", status ", std::to_string(work.exit_status)});
    if (run.jobs[i].trials > 0) below += concat({", ", std::to_string(run.jobs[i].trials), " trials"});
    svg.text(x + 12, layout.top[i] + 36, below, {.size = 11, .colour = tools::pale_ink});
    svg.close_group();
  }
  return svg.finish(layout.width, layout.height, concat({"The jobs of ", run.name}), tools::Scheme::light_and_dark);
}

}  // namespace amldist::run
