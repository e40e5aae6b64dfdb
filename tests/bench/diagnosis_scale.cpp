// How much processor time the diagnosis of a step that stands still takes, by the number of its ranks, and how much
// srun's look under `hang=` does, which has the ranks' states from their nodes. (Time by the clock would be that of the
// machine's other programs, too.)
//   diagnosis_scale [RANKS ...]     1024, 10240 and 102400 unless given; multiples of 32
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "base/time/calendar_time.hpp"
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

void measure(trace::testing::StandStill what, std::uint32_t ranks) {
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
