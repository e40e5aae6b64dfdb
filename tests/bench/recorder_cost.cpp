// What one line of the flight recorder costs: begin and complete of a call, against doing nothing and against what a
// line costs that takes its times from the kernel's clock.
//
//   recorder_cost [--rounds N] [--json]
//
// The three are timed in turn, round after round; figures are medians over the rounds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "trace/record/flight_recorder.hpp"

namespace {

namespace trace = amldist::trace;
using namespace amldist;

constexpr int call_count = 200'000;
constexpr double goal_ns = 60;

template <typename Body>
double ns_per_call(Body body) {
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < call_count; ++i) body(i);
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / call_count;
}

double median(std::vector<double> samples) {
  std::ranges::sort(samples);
  return samples[samples.size() / 2];
}

double one_line(trace::FlightRecorder& recorder) {
  return ns_per_call([&](int i) {
    const auto ticket = recorder.begin({calls::Operation::allreduce, calls::DataType::float32, calls::ReduceOp::sum, 0,
                                        static_cast<std::uint64_t>(i) + 1, 4096, -1});
    recorder.complete(ticket);
  });
}

double two_clock_readings() {
  std::uint64_t sum = 0;
  const double cost = ns_per_call([&](int) { sum += TickClock::monotonic_ns() + TickClock::monotonic_ns(); });
  asm volatile("" : : "g"(sum));
  return cost;
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 31;
  bool json = false;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--json") == 0) json = true;
    else if (std::strcmp(argv[i], "--rounds") == 0 && i + 1 < argc) rounds = std::max(1, std::atoi(argv[++i]));
  }
  const bool memory = std::filesystem::is_directory("/dev/shm");
  std::string folder = memory ? "/dev/shm/amldist-bench-XXXXXX" : "/tmp/amldist-bench-XXXXXX";
  if (::mkdtemp(folder.data()) == nullptr) return 1;
  auto recorder = trace::FlightRecorder::create(folder, {"bench", 0, 1, 0, "here"});
  if (!recorder) {
    std::fprintf(stderr, "recorder_cost: %s\n", recorder.error().message.c_str());
    return 1;
  }
  trace::FlightRecorder off;
  std::vector<double> on_ns, off_ns, clock_ns;
  for (int round = 0; round < rounds; ++round) {
    on_ns.push_back(one_line(*recorder));
    off_ns.push_back(one_line(off));
    clock_ns.push_back(two_clock_readings());
  }
  recorder->close(trace::FlightRecorder::Ending::well);
  if (json) {
    std::printf("{\"line_ns\": %.1f, \"off_ns\": %.1f, \"two_clock_readings_ns\": %.1f, \"goal_ns\": %.0f}\n",
                median(on_ns), median(off_ns), median(clock_ns), goal_ns);
    return 0;
  }
  std::printf("flight recorder, one call        %6.1f ns   goal: at most %.0f ns (%.2f of it)\n", median(on_ns),
              goal_ns, median(on_ns) / goal_ns);
  std::printf("switched off                     %6.1f ns\n", median(off_ns));
  std::printf("two readings of the clock alone  %6.1f ns\n", median(clock_ns));
  return 0;
}
