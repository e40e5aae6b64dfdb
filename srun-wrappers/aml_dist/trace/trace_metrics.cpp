#include "aml_dist/trace/trace_metrics.hpp"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "aml_dist/trace/trace_output.hpp"
#include "shared/metrics.hpp"
#include "trace/diagnosis/straggler.hpp"
#include "trace/diagnosis/traffic.hpp"
#include "trace/diagnosis/waits.hpp"

namespace amldist::tools {
namespace {

using commands::Gauge;
using trace::MissingRank;
using trace::Recording;
using trace::Stall;
using trace::Writer;

constexpr double seconds_per_ns = 1e-9;

/// All gauges of a step.
class TraceMetrics {
 public:
  explicit TraceMetrics(const TracedStep& step) : step_(step) {
    for (const Recording& each : step.recordings) {
      runs_.add(
          {{"step", step.job()}, {"rank", std::to_string(each.rank)}, {"host", each.host}, {"source", each.source}},
          each.writer == Writer::runs ? 1 : 0);
      add_traffic(each);
    }
    for (const Stall& each : step.stalls) add(each);
    stalled_.add({{"step", step.job()}}, static_cast<double>(step.stalls.size()));
    const auto waits = trace::find_waits(step.recordings);
    const auto straggler = trace::name_straggler(step.recordings, waits);
    for (const auto& each : waits.ranks) {
      shares_.add(labels_of(each.rank, each.host), waits.share_of(each));
      if (!straggler || straggler->rank != each.rank) straggler_.add(labels_of(each.rank, each.host), 0);
    }
    if (straggler) straggler_.add(labels_of(straggler->rank, straggler->host), 1);
  }

  [[nodiscard]] std::string text() const {
    return commands::to_openmetrics(
        {stalled_, awaited_, ranks_, shares_, straggler_, runs_, calls_, bytes_, parts_, bus_});
  }

 private:
  [[nodiscard]] Gauge::Labels labels_of(std::uint32_t rank, const std::string& host) const {
    return {{"step", step_.job()}, {"rank", std::to_string(rank)}, {"host", host}};
  }

  [[nodiscard]] Gauge::Labels labels_of(const Stall& stall, const MissingRank& missing) const {
    return {{"step", step_.job()},
            {"rank", std::to_string(missing.rank)},
            {"host", std::string(missing.host())},
            {"why", std::string(word_of(missing.why))},
            {"communicator", stall.communicator_name},
            {"operation", std::string(trace::name_of(stall.call))}};
  }

  void add(const Stall& stall) {
    const std::int64_t waited = stall.since_ns > 0 ? std::max<std::int64_t>(0, step_.now_ns - stall.since_ns) : 0;
    for (const MissingRank& each : stall.missing) {
      if (each.why == MissingRank::Why::no_recorder) continue;  // of another node: what it does is not known here
      const Gauge::Labels labels = labels_of(stall, each);
      // Two messages that one rank has not joined would be the same sample twice, which the format forbids.
      const auto same = [&](const auto& sample) { return sample.first == labels; };
      if (std::ranges::any_of(awaited_.samples, same)) continue;
      awaited_.add(labels, static_cast<double>(waited) * seconds_per_ns);
      ranks_.add(labels, static_cast<double>(stall.waiting.size()));
    }
  }

  void add_traffic(const Recording& recording) {
    for (const trace::Traffic& each : trace::find_traffic(recording, step_.now_ns)) {
      const Gauge::Labels labels = {{"step", step_.job()},
                                    {"rank", std::to_string(recording.rank)},
                                    {"host", recording.host},
                                    {"source", recording.source},
                                    {"operation", std::string(trace::name_of(each.operation))}};
      calls_.add(labels, each.calls);
      bytes_.add(labels, each.bytes);
      if (each.part) parts_.add(labels, *each.part);
      if (each.bus) bus_.add(labels, *each.bus);
    }
  }

  const TracedStep& step_;
  Gauge stalled_{"aml_dist_trace_stalled_calls", "Calls of a step that cannot end; 0: no rank waits."};
  Gauge awaited_{"aml_dist_trace_awaited_seconds", "For how long others have waited for this rank."};
  Gauge ranks_{"aml_dist_trace_waiting_ranks", "Ranks that wait for this rank."};
  Gauge shares_{"aml_dist_trace_wait_share",
                "The fraction of all waits in ended calls that was for this rank, 0 to 1."};
  Gauge straggler_{"aml_dist_trace_straggler", "1: all wait for this rank again and again; 0: they do not."};
  Gauge runs_{"aml_dist_trace_process_runs", "1: the process of a rank runs; 0: it is stopped or gone."};
  Gauge calls_{"aml_dist_trace_calls_per_second", "Calls of a rank that ended, in the last minute."};
  Gauge bytes_{"aml_dist_trace_bytes_per_second", "Bytes of these calls: the rank's input, or else its output."};
  Gauge parts_{"aml_dist_trace_time_in_calls", "The part of its time that a rank was in calls, waits included."};
  Gauge bus_{"aml_dist_trace_bus_bytes_per_second",
             "Bus bandwidth within the calls, by the factors of nccl-tests, waits included."};
};

}  // namespace

std::string to_metrics(const TracedStep& step) { return TraceMetrics(step).text(); }

}  // namespace amldist::tools
