// A node's side of the first failure: one datagram to srun for each task that failed.
#pragma once

#include <optional>

#include "core/environment.hpp"
#include "core/ipv4.hpp"
#include "rendezvous/failure_report.hpp"

namespace amldist::spank {

/// The way to the srun that started the step.
struct ReportTarget {
  Ipv4 address;
  ReportChannel channel;
};

/// The way, from what srun and slurmd put into the step's environment. nullopt without a listening srun, or with one
/// that Slurm reaches over IPv6 only.
[[nodiscard]] std::optional<ReportTarget> read_report_target(const EnvironmentReader& environment);

/// Sends and forgets: never waits, says nothing about success.
void send_report(const ReportTarget& target, const FailureReport& report);

}  // namespace amldist::spank
