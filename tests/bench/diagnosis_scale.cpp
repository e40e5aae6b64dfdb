// How long the diagnosis of a step that stands still takes, by the number of its ranks, and how long srun's look under
// `hang=` does, which has the ranks' states from their nodes.
//   diagnosis_scale [RANKS ...]     1024, 10240 and 102400 unless given; multiples of 32
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/time/calendar_time.hpp"
#include "step/messages/rank_state.hpp"
#include "step/server/hang_detector.hpp"
#include "trace/diagnosis/hang_diagnosis.hpp"
#include "trace/test/wait_states.hpp"

namespace {

using namespace amldist;
using Steady = std::chrono::steady_clock;

double ms_since(Steady::time_point start) {
  return std::chrono::duration<double, std::milli>(Steady::now() - start).count();
}

void measure(trace::testing::StandStill what, std::uint32_t ranks) {
  const auto step = trace::testing::standing_still(what, ranks);
  const auto start = Steady::now();
  const auto diagnosis = trace::diagnose_hang(step);
  const double own = ms_since(start);
  constexpr std::uint32_t long_wait = 1;
  step::HangDetector detector(long_wait, ranks);
  auto now = Clock::now();
  for (const auto& each : step) detector.take_state(step::to_rank_state(each, calendar_ns()), now);
  static_cast<void>(detector.take_wait("3600000", now));
  double longest = 0;
  for (int look = 0; look < 4; ++look) {
    now += std::chrono::seconds(2);
    const auto begin = Steady::now();
    static_cast<void>(detector.look(now));
    longest = std::max(longest, ms_since(begin));
  }
  std::printf("%8u ranks, %-20s diagnosis %9.1f ms, longest look of srun %9.1f ms%s\n", ranks,
              trace::testing::name_of(what), own, longest, diagnosis ? "" : " (nobody is to blame)");
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::uint32_t> sizes;
  for (int i = 1; i < argc; ++i) sizes.push_back(static_cast<std::uint32_t>(std::strtoul(argv[i], nullptr, 10)));
  if (sizes.empty()) sizes = {1024, 10240, 102400};
  for (const std::uint32_t ranks : sizes) {
    for (const auto what : trace::testing::stand_stills) measure(what, ranks);
  }
}
