#include "trace/diagnosis/traffic.hpp"

#include <algorithm>
#include <map>

namespace amldist::trace {
namespace {

using calls::Operation;
using recorder_format::State;

constexpr std::int64_t minute_ns = 60'000'000'000;
/// Shorter times say nothing about rates.
constexpr std::int64_t shortest_ns = 1'000'000;
constexpr std::int64_t shortest_of_rate_ns = 1000;  ///< of a call: see record_format.hpp
constexpr double seconds_per_ns = 1e-9;

struct Time {
  std::int64_t begin_ns;
  std::int64_t end_ns;

  [[nodiscard]] double seconds() const noexcept { return static_cast<double>(end_ns - begin_ns) * seconds_per_ns; }
};

/// Sums of the calls of one operation.
struct Sums {
  double calls = 0;
  double bytes = 0;
  double in_calls = 0;     ///< seconds of the time that is looked at
  double bus_bytes = 0;    ///< of the calls below
  double bus_seconds = 0;  ///< of ended calls, from their beginnings
  bool is_timed = false;
};

/// A file without heartbeats may have calls that are newer than its last one.
std::int64_t last_sign_of(const Recording& recording) noexcept {
  std::int64_t last = recording.latest_ns;
  for (const CallRecord& call : recording.calls) last = std::max({last, call.enqueued_ns, call.ended_ns});
  return last;
}

Time time_of(const Recording& recording, std::int64_t now_ns) noexcept {
  const std::int64_t end = recording.writer == Writer::runs ? now_ns : last_sign_of(recording);
  const bool lacks_older = recording.recorded > recording.calls.size() && !recording.calls.empty();
  const std::int64_t first = lacks_older ? recording.calls.front().enqueued_ns : recording.created_ns;
  return {std::clamp(first, end - minute_ns, end), end};
}

/// How many bytes pass each link for a byte of a rank's input, among this many ranks.
double bus_factor(Operation operation, std::uint32_t ranks) noexcept {
  const double others = ranks - 1.0;
  if (operation == Operation::allreduce) return 2 * others / ranks;
  if (operation == Operation::allgather || operation == Operation::allgatherv || operation == Operation::gather)
    return others;  // of the result, of which the input is one part
  const bool splits = operation == Operation::reduce_scatter || operation == Operation::reduce_scatterv ||
                      operation == Operation::alltoall || operation == Operation::alltoallv ||
                      operation == Operation::scatter;
  return splits ? others / ranks : 1;
}

void add(const Recording& recording, const CallRecord& call, const Time& time, Sums& sums) {
  const bool has_ended = call.state == State::completed;
  const bool is_timed = recording.knows_ends() && call.started_ns != 0;  // else it was posted, and nobody waits in it
  const std::int64_t end = has_ended ? call.ended_ns : time.end_ns;
  if (call.state == State::failed || end <= time.begin_ns) return;
  if (is_timed) {
    sums.is_timed = true;
    sums.in_calls += Time{std::max(call.started_ns, time.begin_ns), std::max(end, call.started_ns)}.seconds();
  }
  if (!has_ended) return;
  sums.calls += 1;
  sums.bytes += static_cast<double>(call.bytes);
  const auto* const communicator = recording.communicator(call.communicator);
  const bool has_rate = is_timed && call.ended_ns >= call.started_ns + shortest_of_rate_ns;
  if (!has_rate || communicator == nullptr || communicator->size < 2) return;
  sums.bus_bytes += static_cast<double>(call.bytes) * bus_factor(call.operation, communicator->size);
  sums.bus_seconds += Time{call.started_ns, call.ended_ns}.seconds();
}

Traffic traffic_of(Operation operation, const Sums& sums, const Time& time) {
  const double seconds = time.seconds();
  Traffic out{operation, sums.calls / seconds, sums.bytes / seconds};
  if (sums.is_timed) out.part = sums.in_calls / seconds;
  if (sums.bus_seconds > 0 && sums.bus_bytes > 0) out.bus = sums.bus_bytes / sums.bus_seconds;
  return out;
}

}  // namespace

std::vector<Traffic> find_traffic(const Recording& recording, std::int64_t now_ns) {
  const Time time = time_of(recording, now_ns);
  if (time.end_ns - time.begin_ns < shortest_ns) return {};
  std::map<Operation, Sums> by_operation;
  for (const CallRecord& call : recording.calls) {
    if (call.operation != Operation::none) add(recording, call, time, by_operation[call.operation]);
  }
  std::vector<Traffic> out;
  for (const auto& [operation, sums] : by_operation) {
    if (sums.calls > 0 || sums.is_timed) out.push_back(traffic_of(operation, sums, time));
  }
  return out;
}

}  // namespace amldist::trace
