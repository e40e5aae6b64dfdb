#include "aml_dist/trace/timeline_svg.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "aml_dist/trace/trace_output.hpp"
#include "base/text/text.hpp"
#include "shared/svg.hpp"

namespace amldist::tools {
namespace {

using calls::Operation;
using text::concat;
using trace::CallRecord;
using trace::MissingRank;
using trace::Recording;
using trace::Stall;
using trace::Writer;
using trace::recorder_format::State;
using Anchor = TextStyle::Anchor;

constexpr int timeline_width = 1200;
constexpr int timeline_margin = 24;
constexpr int gutter = 190;  // names of the lanes
constexpr int lane_height = 30;
constexpr int lane_gap = 8;
constexpr int timeline_head = 96;
constexpr int timeline_foot = 84;
constexpr std::size_t most_lanes = 64;
constexpr double lanes_left = timeline_margin + gutter;
constexpr double lanes_right = timeline_width - timeline_margin;
constexpr double break_at = lanes_left + (lanes_right - lanes_left) * 0.72;

constexpr std::string_view ink_on_waiting = "#241a00";
constexpr std::string_view lane_fill = "#f4f6f8";
constexpr std::string_view waiting_fill = "#f0b429";
constexpr std::string_view missing_ink = "#b3261e";
constexpr std::string_view missing_fill = "#fbdad7";

/// By kind of work, so that a picture needs few colours.
constexpr std::string_view colour_of(Operation operation) {
  switch (operation) {
    case Operation::allreduce:
    case Operation::reduce:
    case Operation::reduce_scatter:
    case Operation::reduce_scatterv:
      return "#4a7fb5";
    case Operation::broadcast:
    case Operation::scatter:
    case Operation::allgather:
    case Operation::allgatherv:
    case Operation::gather:
      return "#5a9e6f";
    case Operation::alltoall:
    case Operation::alltoallv:
    case Operation::send:
    case Operation::recv:
      return "#8b6fb3";
    default:
      return "#8895a3";
  }
}

bool never_ended(const CallRecord& call) { return call.pending() || call.state == State::failed; }

/// Maps nanoseconds to the page. After the last event of the working step, time may be compressed.
class TimeScale {
 public:
  TimeScale(std::int64_t first, std::int64_t worked_until, std::int64_t end)
      : first_(first),
        work_(std::max<std::int64_t>(worked_until - first, 1000)),
        end_(std::max(end, first_ + work_)),
        broken_(end_ - first_ - work_ > work_ / 2) {}

  [[nodiscard]] double x(std::int64_t time) const {
    const auto since = static_cast<double>(std::clamp(time, first_, end_) - first_);
    const auto work = static_cast<double>(work_);
    if (!broken_) return lanes_left + since / static_cast<double>(end_ - first_) * (lanes_right - lanes_left);
    if (since <= work) return lanes_left + since / work * (break_at - lanes_left);
    return break_at + (since - work) / (static_cast<double>(end_ - first_) - work) * (lanes_right - break_at);
  }
  [[nodiscard]] bool broken() const { return broken_; }
  [[nodiscard]] std::int64_t first() const { return first_; }
  [[nodiscard]] std::int64_t end() const { return end_; }
  [[nodiscard]] std::int64_t linear() const { return broken_ ? work_ : end_ - first_; }

 private:
  std::int64_t first_;
  std::int64_t work_;
  std::int64_t end_;
  bool broken_;
};

/// The newest calls of one rank.
std::span<const CallRecord> newest(const Recording& recording, std::size_t last) {
  const std::span<const CallRecord> calls = recording.calls;
  return calls.last(std::min(last, calls.size()));
}

TimeScale scale_for(const TracedStep& step, std::size_t last) {
  std::int64_t first = step.now_ns;
  std::int64_t worked_until = 0;
  for (const Recording& recording : step.recordings) {
    for (const CallRecord& call : newest(recording, last)) {
      first = std::min(first, call.begin_ns());
      worked_until = std::max({worked_until, call.begin_ns(), never_ended(call) ? 0 : call.ended_ns});
    }
  }
  return {first, worked_until, step.now_ns};
}

/// One lane: a rank with its recorder, or one that is only known to be absent.
struct Lane {
  std::uint32_t rank = 0;
  const Recording* recording = nullptr;
  const Stall* missing = nullptr;  ///< it keeps this call waiting
  const MissingRank* rank_missing = nullptr;
};

std::vector<Lane> lanes_of(const TracedStep& step) {
  std::vector<Lane> lanes;
  for (const Recording& recording : step.recordings) lanes.push_back({recording.rank, &recording});
  for (const Stall& stall : step.stalls) {
    for (const MissingRank& each : stall.missing) {
      const bool world = stall.members == step.size();
      const bool recorded = each.why != MissingRank::Why::no_recorder;
      if (!recorded && !world) continue;  // its number in the step is not known
      auto lane = std::ranges::find(lanes, each.rank, &Lane::rank);
      if (lane == lanes.end()) lane = lanes.insert(lanes.end(), {each.rank, nullptr});
      lane->missing = &stall;
      lane->rank_missing = &each;
    }
  }
  std::ranges::stable_sort(lanes, [](const Lane& a, const Lane& b) {
    return std::pair(a.missing == nullptr, a.rank) < std::pair(b.missing == nullptr, b.rank);
  });
  lanes.resize(std::min(lanes.size(), most_lanes));
  std::ranges::sort(lanes, {}, &Lane::rank);
  return lanes;
}

std::string fitted(std::string words, double width, int size) {
  const auto fits = static_cast<std::size_t>(std::max(0.0, width / (size * 0.62)));
  if (words.size() <= fits) return words;
  return fits < 8 ? std::string() : words.substr(0, fits - 3) + "...";
}

void draw_call(Svg& svg, const CallRecord& call, const TimeScale& scale, int y) {
  const bool waits = never_ended(call);
  const double from = scale.x(call.begin_ns());
  const double to = scale.x(call.pending() ? scale.end() : call.ended_ns);
  const double width = std::max(to - from, 1.0);
  svg.open_group(concat({trace::describe_call(call), waits ? ", waits" : ", ",
                         waits ? "" : describe_duration(call.ended_ns - call.begin_ns())}));
  svg.bar({from, y + 4.0}, width, lane_height - 8.0, waits ? waiting_fill : colour_of(call.operation));
  const std::string label = concat({trace::name_of(call.operation), " #", std::to_string(call.sequence)});
  const std::string shown = fitted(label, width - 8, 11);
  const bool whole = shown.size() == label.size();
  if (whole) {
    svg.text(static_cast<int>(from) + 5, y + lane_height / 2 + 4, shown,
             {11, waits ? ink_on_waiting : "#ffffff", waits});
  }
  svg.close_group();
}

std::string_view label_of(MissingRank::Why why) {
  constexpr std::array<std::string_view, 7> words = {"missing", "stopped",     "dead", "late",
                                                     "differs", "no recorder", "alone"};
  return words.at(static_cast<std::size_t>(why));
}

void draw_missing(Svg& svg, const Lane& lane, const TimeScale& scale, int y) {
  const Stall& stall = *lane.missing;
  std::int64_t since = stall.since_ns > 0 ? stall.since_ns : scale.first();
  // Others may have gone beyond its last call.
  if (lane.recording != nullptr && !lane.recording->calls.empty())
    since = std::max(since, lane.recording->calls.back().ended_ns);
  const double from = scale.x(since);
  const double width = std::max(lanes_right - from, 60.0);
  const double corner = lanes_right - width;
  svg.open_group(trace::sentence(stall, *lane.rank_missing));
  svg.bar({corner, y + 3.0}, width, lane_height - 6.0, missing_fill);
  svg.frame({corner, y + 3.0}, width, lane_height - 6.0, {missing_ink, 1.5, true});
  const std::string label = concat(
      {label_of(lane.rank_missing->why), ": ", trace::name_of(stall.call), " #", std::to_string(stall.call.sequence)});
  svg.text(static_cast<int>(corner) + 6, y + lane_height / 2 + 4, fitted(label, width - 12, 12),
           {12, missing_ink, true});
  svg.close_group();
}

void draw_lane(Svg& svg, const Lane& lane, const TimeScale& scale, std::size_t last, int y) {
  const bool culprit = lane.missing != nullptr;
  svg.bar({lanes_left, static_cast<double>(y)}, lanes_right - lanes_left, lane_height, lane_fill);
  svg.text(timeline_margin, y + 13, concat({"rank ", std::to_string(lane.rank)}),
           {13, culprit ? missing_ink : ink, true});
  const std::string process = lane.recording == nullptr                                        ? ""
                              : lane.recording->writer == Writer::runs                         ? ""
                              : lane.recording->writer == Writer::stopped                      ? ", stopped"
                              : lane.recording->ending == trace::recorder_format::Ending::none ? ", dead"
                                                                                               : ", closed";
  const std::string place = lane.recording == nullptr ? "no recorder here" : lane.recording->host + process;
  svg.text(timeline_margin, y + 27, fitted(place, gutter - 8, 11), {11, culprit ? missing_ink : pale_ink});
  if (culprit) draw_missing(svg, lane, scale, y);
  if (lane.recording == nullptr) return;
  for (const CallRecord& call : newest(*lane.recording, last)) draw_call(svg, call, scale, y);
}

/// 1, 2 or 5 times a power of ten, for about six marks.
std::int64_t mark_distance(std::int64_t span) {
  const double rough = static_cast<double>(span) / 6;
  const double power = std::pow(10, std::floor(std::log10(std::max(rough, 1.0))));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough) return static_cast<std::int64_t>(factor * power);
  }
  return static_cast<std::int64_t>(10 * power);
}

void draw_axis(Svg& svg, const TimeScale& scale, int top, int bottom) {
  const std::int64_t distance = mark_distance(scale.linear());
  const auto mark = [&](double x, const std::string& words) {
    const std::array<Point, 2> line = {{{x, static_cast<double>(top)}, {x, bottom + 4.0}}};
    svg.line(line, {grid_ink, 1});
    svg.text(static_cast<int>(x), bottom + 20, words, {11, pale_ink, false, Anchor::middle});
  };
  for (std::int64_t time = 0; time <= scale.linear(); time += distance) {
    const double x = scale.x(scale.first() + time);
    if (!scale.broken() || x < break_at - 30) mark(x, time == 0 ? "0" : describe_duration(time));
  }
  if (!scale.broken()) return;
  const std::array<Point, 2> cut = {{{break_at, top - 6.0}, {break_at, bottom + 4.0}}};
  svg.line(cut, {pale_ink, 1, true});
  svg.text(static_cast<int>(break_at), bottom + 20, describe_duration(scale.linear()),
           {11, pale_ink, false, Anchor::middle});
  svg.text(static_cast<int>(lanes_right), bottom + 20, describe_duration(scale.end() - scale.first()),
           {11, pale_ink, false, Anchor::end});
  svg.text(static_cast<int>((break_at + lanes_right) / 2), bottom + 20, "not to scale",
           {11, pale_ink, false, Anchor::middle});
}

void draw_legend(Svg& svg, const TracedStep& step, int y) {
  struct Key {
    std::string_view colour;
    std::string_view words;
  };
  constexpr std::array<Key, 6> keys = {{{colour_of(Operation::allreduce), "reductions"},
                                        {colour_of(Operation::broadcast), "broadcasts, gathers"},
                                        {colour_of(Operation::send), "exchanges, messages"},
                                        {colour_of(Operation::barrier), "barriers, others"},
                                        {waiting_fill, "has not ended"},
                                        {missing_ink, "is waited for"}}};
  int x = timeline_margin;
  for (const Key& key : keys) {
    svg.bar({static_cast<double>(x), y - 11.0}, 14, 14, key.colour);
    svg.text(x + 20, y, key.words, {12, ink});
    x += 46 + static_cast<int>(key.words.size()) * 7;
  }
  if (step.size() > most_lanes) {
    svg.text(static_cast<int>(lanes_right), y,
             concat({"at most ", std::to_string(most_lanes), " of ", std::to_string(step.size()), " ranks are shown"}),
             {12, pale_ink, false, Anchor::end});
  }
}

void draw_head(Svg& svg, const TracedStep& step) {
  svg.text(timeline_margin, 38,
           fitted(concat({"Step ", step.job(), ": what its ", text::count(step.size(), "rank"), " did last"}),
                  lanes_right - lanes_left, 20),
           {20, ink, true});
  const std::string verdict =
      step.stalls.empty() ? "No rank keeps the others waiting." : trace::sentence(step.stalls.front());
  svg.text(timeline_margin, 68, fitted(verdict, lanes_right - timeline_margin, 14),
           {14, step.stalls.empty() ? pale_ink : missing_ink});
}

}  // namespace

std::string draw_timeline(const TracedStep& step, std::size_t last) {
  const auto lanes = lanes_of(step);
  const TimeScale scale = scale_for(step, last);
  const int bottom = timeline_head + static_cast<int>(lanes.size()) * (lane_height + lane_gap);
  Svg svg;
  draw_head(svg, step);
  draw_axis(svg, scale, timeline_head - 4, bottom);
  int y = timeline_head;
  for (const Lane& lane : lanes) {
    draw_lane(svg, lane, scale, last, y);
    y += lane_height + lane_gap;
  }
  draw_legend(svg, step, bottom + 56);
  return svg.finish(timeline_width, bottom + timeline_foot, concat({"Timeline of step ", step.job()}),
                    Scheme::light_and_dark);
}

}  // namespace amldist::tools
