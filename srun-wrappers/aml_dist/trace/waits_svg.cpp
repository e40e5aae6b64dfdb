#include "aml_dist/trace/waits_svg.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "aml_dist/trace/trace_output.hpp"
#include "base/text/text.hpp"
#include "shared/svg.hpp"
#include "trace/diagnosis/stalls.hpp"

namespace amldist::tools {
namespace {

using text::concat;
using trace::MissingRank;
using trace::Stall;

constexpr int waits_margin = 24;
constexpr int waits_head = 84;
constexpr int box_width = 400;
constexpr int box_height = 62;
constexpr int row_gap = 26;
constexpr int column_gap = 96;
constexpr std::size_t most_wait_boxes = 40;
constexpr std::string_view waits_fill = "#fdf0cf";
constexpr std::string_view blamed_ink = "#b3261e";
constexpr std::string_view blamed_fill = "#fbdad7";

struct WaitBox {
  std::string title;
  std::string words;
  bool is_to_blame = false;
  std::set<std::size_t> next = {};  ///< boxes that it waits for
  std::size_t column = 0;
  int row = 0;
};

std::string shortened(std::string words) {
  constexpr std::size_t most = 58;
  if (words.size() > most) words = words.substr(0, most - 3) + "...";
  return words;
}

std::string ranks_text(const std::vector<std::uint32_t>& ranks, std::string_view verb_of_one,
                       std::string_view verb_of_many) {
  return concat({ranks.size() == 1 ? "rank " : "ranks ", trace::compress_ranks(ranks), " ",
                 ranks.size() == 1 ? verb_of_one : verb_of_many});
}

/// The boxes of calls come first, in the order of the stalls.
class WaitPicture {
 public:
  explicit WaitPicture(const TracedStep& step) : step_(step), stalls_(trace::find_all_stalls(step.recordings)) {
    std::ranges::stable_sort(stalls_, std::greater(), [](const Stall& stall) { return stall.waiting.size(); });
    if (stalls_.size() > most_wait_boxes / 2) stalls_.resize(most_wait_boxes / 2);
    if (step.hang) {
      for (const MissingRank& each : step.hang->stall.missing) blamed_.insert(each.rank);
    }
    for (std::size_t i = 0; i < stalls_.size(); ++i) {
      boxes_.push_back({shortened(call_of_group(stalls_[i])), ranks_text(stalls_[i].waiting, "waits", "wait")});
      for (const std::uint32_t rank : stalls_[i].waiting) waits_in_.try_emplace(rank, i);
    }
    for (std::size_t i = 0; i < stalls_.size(); ++i) link(i);
    place();
  }

  std::string draw() {
    Svg svg;
    std::array<int, 64> height{};
    for (WaitBox& box : boxes_) box.row = height.at(std::min<std::size_t>(box.column, 63))++;
    std::size_t columns = 1;
    for (const WaitBox& box : boxes_) columns = std::max(columns, box.column + 1);
    const int rows = std::max(1, *std::ranges::max_element(height));
    const auto title = concat({"step ", step_.job(), ": who waits for whom"});
    svg.text(waits_margin, 36, title, {18, ink, true});
    const std::string said =
        step_.hang ? trace::sentence(*step_.hang, 0) : std::string("no rank waits for another one for ever");
    svg.text(waits_margin, 60, said.substr(0, 150), {13, step_.hang ? blamed_ink : pale_ink});
    for (const WaitBox& box : boxes_) {
      for (const std::size_t next : box.next) arrow(svg, box, boxes_[next]);
    }
    for (const WaitBox& box : boxes_) draw(svg, box);
    const int width =
        std::max<int>(2 * waits_margin + static_cast<int>(columns) * (box_width + column_gap) - column_gap, 1100);
    return svg.finish(width, waits_head + rows * (box_height + row_gap) + waits_margin, title, Scheme::light_and_dark);
  }

 private:
  void link(std::size_t from) {
    for (const MissingRank& each : stalls_[from].missing) {
      const auto found = waits_in_.find(each.rank);
      const bool waits = found != waits_in_.end() && found->second != from;
      if (waits) boxes_[from].next.insert(found->second);
      if (waits && !blamed_.contains(each.rank)) continue;
      if (const auto box = box_of(from, each)) boxes_[from].next.insert(*box);
    }
  }
  /// One for each rank; ranks beyond the picture's room have none.
  std::optional<std::size_t> box_of(std::size_t stall, const MissingRank& missing) {
    const auto [place, is_new] = box_of_.try_emplace(missing.rank, boxes_.size());
    if (!is_new) return place->second;
    if (boxes_.size() == most_wait_boxes) {
      box_of_.erase(place);
      return std::nullopt;
    }
    const std::string words = trace::sentence(stalls_[stall], missing);
    const auto does = words.find(missing.host());
    boxes_.push_back(
        {concat({"rank ", std::to_string(missing.rank), missing.host().empty() ? "" : " on ", missing.host()}),
         shortened(does == std::string::npos || missing.host().empty()
                       ? words
                       : words.substr(does + missing.host().size() + 1)),
         blamed_.contains(missing.rank)});
    return place->second;
  }
  /// A box lies right of those that wait for it, unless they wait for each other.
  void place() {
    constexpr std::size_t last_column = 3;
    for (std::size_t round = 0; round < last_column; ++round) {
      for (const WaitBox& box : boxes_) {
        for (const std::size_t next : box.next) {
          if (!leads_back(next, box))
            boxes_[next].column = std::max(boxes_[next].column, std::min(box.column + 1, last_column));
        }
      }
    }
  }
  [[nodiscard]] bool leads_back(std::size_t from, const WaitBox& to) const {
    std::vector<std::size_t> open = {from};
    std::set<std::size_t> seen;
    while (!open.empty()) {
      const std::size_t own = open.back();
      open.pop_back();
      if (&boxes_[own] == &to) return true;
      if (seen.insert(own).second) open.insert(open.end(), boxes_[own].next.begin(), boxes_[own].next.end());
    }
    return false;
  }

  static Point corner(const WaitBox& box) {
    return {static_cast<double>(waits_margin + static_cast<int>(box.column) * (box_width + column_gap)),
            static_cast<double>(waits_head + box.row * (box_height + row_gap))};
  }
  static void draw(Svg& svg, const WaitBox& box) {
    const auto at = corner(box);
    const int x = static_cast<int>(at.x);
    const int y = static_cast<int>(at.y);
    svg.rectangle({x, y, box_width, box_height}, box.is_to_blame ? blamed_fill : waits_fill,
                  box.is_to_blame ? blamed_ink : pale_ink);
    svg.text(x + 12, y + 26, box.title, {13, box.is_to_blame ? blamed_ink : "#241a00", true});
    svg.text(x + 12, y + 47, box.words, {12, box.is_to_blame ? blamed_ink : "#241a00"});
  }
  static void arrow(Svg& svg, const WaitBox& from, const WaitBox& to) {
    const Point begin{corner(from).x + box_width, corner(from).y + box_height * 0.5};
    const bool is_back = to.column <= from.column;
    const Point end{corner(to).x + (is_back ? box_width : 0), corner(to).y + box_height * (is_back ? 0.7 : 0.5)};
    const LineStyle style{to.is_to_blame ? blamed_ink : pale_ink, 1.6};
    const double bend = begin.x + column_gap * 0.45;
    const double side = is_back ? 1 : -1;
    const double turn = is_back ? bend : end.x - column_gap * 0.45;
    // Below the boxes of the columns between.
    const double way = to.column > from.column + 1 ? corner(from).y + box_height + row_gap * 0.5 : begin.y;
    svg.line(std::array{begin, Point{bend, begin.y}, Point{bend, way}, Point{turn, way}, Point{turn, end.y}, end},
             style);
    svg.line(std::array{Point{end.x + side * 9, end.y - 5}, end, Point{end.x + side * 9, end.y + 5}}, style);
  }

  const TracedStep& step_;
  std::vector<Stall> stalls_;
  std::set<std::uint32_t> blamed_;
  std::map<std::uint32_t, std::size_t> waits_in_;  ///< by rank: the stall
  std::map<std::uint32_t, std::size_t> box_of_;    ///< of ranks that are waited for
  std::vector<WaitBox> boxes_;
};

}  // namespace

std::string draw_waits(const TracedStep& step) { return WaitPicture(step).draw(); }

}  // namespace amldist::tools
