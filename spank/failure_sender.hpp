// A node's side of what srun is told about its tasks: one datagram for each that failed.
#pragma once

#include <optional>
#include <string>

#include "core/environment.hpp"
#include "core/file_descriptor.hpp"
#include "core/ipv4.hpp"
#include "rendezvous/failure_report.hpp"
#include "rendezvous/server_release.hpp"

namespace amldist::spank {

/// The way to the srun that started the step.
struct ReportTarget {
  Ipv4 address;
  ReportChannel channel;
};

/// The way, from what srun and slurmd put into the step's environment. nullopt without a listening srun, or with one
/// that Slurm reaches over IPv6 only.
[[nodiscard]] std::optional<ReportTarget> read_report_target(const EnvironmentReader& environment);

/// A datagram socket that never waits. Not connected: an srun with several addresses may answer from another than the
/// one it is reached by; the token tells its answers. Empty when there is none to be had.
[[nodiscard]] FileDescriptor open_socket() noexcept;

/// Sends one datagram, or does not.
void send_to(const ReportTarget& target, int socket, const std::string& datagram) noexcept;

/// Sends and forgets: never waits, says nothing about success.
void send_report(const ReportTarget& target, const FailureReport& report);

/// Sends until srun has heard, at most for a second. Returns whether it has.
bool tell_end(const ReportTarget& target, const WorkerEnd& end);

}  // namespace amldist::spank
