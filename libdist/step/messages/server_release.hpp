// When a parameter-server step is over. Servers never return, so they must be ended.
//
// The servers' task monitors ask srun every half second over the channel of failure_report.hpp:
//
//   aml-dist;1;00c0ffee00c0ffee;may-i-end       from a task monitor
//   aml-dist;1;00c0ffee00c0ffee;not-yet         to the task monitor
//   aml-dist;1;00c0ffee00c0ffee;end             to the task monitor
//
// Nodes report the end of every chief and worker to srun, and repeat the report until srun answers:
//
//   aml-dist;1;00c0ffee00c0ffee;ended;worker;1;0;0;2        role, rank, wait status, chiefs, workers of the step
//   aml-dist;1;00c0ffee00c0ffee;heard
//
// control_message.hpp defines the messages without fields.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace amldist::step {

/// The end of a chief or worker, and the number of chiefs and workers in the step.
struct WorkerEnd {
  bool chief = false;
  std::uint32_t rank = 0;
  std::uint32_t wait_status = 0;
  std::uint32_t chiefs = 0;
  std::uint32_t workers = 0;

  [[nodiscard]] std::string to_datagram(std::uint64_t token) const;
  /// nullopt for a datagram that to_datagram(token) cannot have written.
  [[nodiscard]] static std::optional<WorkerEnd> parse(std::string_view datagram, std::uint64_t token);

  friend bool operator==(const WorkerEnd&, const WorkerEnd&) = default;
};

/// Decides when the servers may end: when all workers have succeeded; or when the chief has, and the workers have ended
/// too or had time to. (TensorFlow 2 workers serve like parameter servers and never return; Estimator workers end
/// shortly after their chief.) Time is an argument, so that tests can set it.
class ServerRelease {
 public:
  using Clock = std::chrono::steady_clock;

  /// How long workers may continue after their chief has ended.
  static constexpr std::chrono::seconds grace{10};

  void take(const WorkerEnd& end, Clock::time_point now);
  [[nodiscard]] bool due(Clock::time_point now) const;

 private:
  std::optional<Clock::time_point> chief_ended_well_;
  std::set<std::uint32_t> ended_;
  std::set<std::uint32_t> ended_well_;
  std::uint32_t chiefs_ = 0;
  std::uint32_t workers_ = 0;
};

}  // namespace amldist::step
