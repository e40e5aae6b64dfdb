// How much processor time the diagnosis of a step that stands still takes, by the number of its ranks, and how much
// srun's look under `hang=` does, which has the ranks' states from their nodes. (Time by the clock would be that of the
// machine's other programs, too.)
//   diagnosis_scale [FILE.svg] [RANKS ...]     1024, 10240 and 102400 unless given; multiples of 32
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aml_dist/bench/chart.hpp"
#include "aml_dist/common/files.hpp"
#include "base/time/calendar_time.hpp"
#include "shared/svg.hpp"
#include "step/messages/rank_state.hpp"
#include "step/server/hang_detector.hpp"
#include "trace/diagnosis/hang_diagnosis.hpp"
#include "trace/test/wait_states.hpp"

namespace {

using namespace amldist;
/// Of this thread, in ms.
double processor_time() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return 1e3 * static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_nsec);
}

/// One more than tools::curve_colour() has.
constexpr std::array<std::string_view, trace::testing::stand_stills.size()> colours = {
    "#b42318", "#4477aa", "#5a9e6f", "#8a6fb0", "#e8b02e", "#555f6b", "#17a2a2"};

struct Times {
  double diagnosis;
  double longest_look;
};

Times measure(trace::testing::StandStill what, std::uint32_t ranks) {
  const auto step = trace::testing::standing_still(what, ranks);
  const double start = processor_time();
  const auto diagnosis = trace::diagnose_hang(step);
  const double own = processor_time() - start;
  constexpr std::uint32_t long_wait = 1;
  step::HangDetector detector(long_wait, ranks);
  auto now = Clock::now();
  for (const auto& each : step) detector.take_state(step::to_rank_state(each, calendar_ns()), now);
  static_cast<void>(detector.take_wait("3600000", now));
  double longest = 0;
  for (int look = 0; look < 4; ++look) {
    now += std::chrono::seconds(2);
    const double begin = processor_time();
    static_cast<void>(detector.look(now));
    longest = std::max(longest, processor_time() - begin);
  }
  std::printf("%8u ranks, %-20s diagnosis %9.1f ms, longest look of srun %9.1f ms, %.1f and %.1f us a rank%s\n", ranks,
              trace::testing::name_of(what), own, longest, 1e3 * own / ranks, 1e3 * longest / ranks,
              diagnosis ? "" : " (nobody is to blame)");
  return {own, longest};
}

/// Times by ranks, both axes logarithmic, so that a line at the slope of the dashed one grows with the ranks.
tools::Chart chart_of(int left, const std::string& title, const std::vector<std::uint32_t>& sizes,
                      const std::array<std::vector<Times>, trace::testing::stand_stills.size()>& times,
                      double Times::*which) {
  tools::Axis x{"ranks", static_cast<double>(sizes.front()), static_cast<double>(sizes.back()), {}, true};
  for (const std::uint32_t ranks : sizes)
    x.marks.push_back({static_cast<double>(ranks), tools::plain_number(static_cast<double>(ranks))});
  std::vector<tools::Curve> curves;
  double least = times[0][0].*which;
  double most = least;
  for (std::size_t i = 0; i < times.size(); ++i) {
    tools::Curve curve{trace::testing::name_of(trace::testing::stand_stills.at(i)), colours.at(i), {}, {}, false};
    for (std::size_t j = 0; j < sizes.size(); ++j) {
      const double time = times.at(i)[j].*which;
      curve.points.push_back({static_cast<double>(sizes[j]), time});
      least = std::min(least, time);
      most = std::max(most, time);
    }
    curves.push_back(std::move(curve));
  }
  const double first = static_cast<double>(sizes.front());
  const double last = static_cast<double>(sizes.back());
  curves.push_back({"10 us a rank", tools::ink, {{first, first / 100}, {last, last / 100}}, {}, true});
  return {{left, tools::chart_top, tools::chart_width, tools::chart_height},
          title,
          std::move(x),
          tools::decades("processor time, ms", std::min(least, first / 100), std::max(most, last / 100)),
          std::move(curves)};
}

}  // namespace

int main(int argc, char** argv) {
  const bool drawn = argc > 1 && std::strstr(argv[1], ".svg") != nullptr;
  std::vector<std::uint32_t> sizes;
  for (int i = drawn ? 2 : 1; i < argc; ++i)
    sizes.push_back(static_cast<std::uint32_t>(std::strtoul(argv[i], nullptr, 10)));
  if (sizes.empty()) sizes = {1024, 10240, 102400};
  std::array<std::vector<Times>, trace::testing::stand_stills.size()> times;
  for (const std::uint32_t ranks : sizes) {
    for (std::size_t i = 0; i < times.size(); ++i)
      times.at(i).push_back(measure(trace::testing::stand_stills.at(i), ranks));
  }
  if (!drawn) return 0;
  tools::Svg svg;
  const std::string title = "The diagnosis of a step that stands still, by the number of its ranks";
  const auto own = chart_of(80, "aml-dist trace FOLDER", sizes, times, &Times::diagnosis);
  svg.text(24, 38, title, {20, tools::ink, true});
  svg.text(24, 64, "Processor time of one thread; each curve is another way to stand still", {14, tools::pale_ink});
  tools::draw_chart(svg, own);
  tools::draw_chart(svg, chart_of(616, "The longest look of srun under hang=", sizes, times, &Times::longest_look));
  const std::span<const tools::Curve> curves = own.curves;
  const std::size_t in_first_line = curves.size() / 2;
  tools::draw_legend(svg, curves.first(in_first_line), 80, tools::page_height - 20);
  tools::draw_legend(svg, curves.subspan(in_first_line), 80, tools::page_height + 8);
  const auto written = tools::write_file(
      argv[1], svg.finish(tools::page_width, tools::page_height + 28, title, tools::Scheme::light_and_dark));
  return written ? 0 : 1;
}
