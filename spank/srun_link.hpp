// A node's line to the srun that started its step: what it tells about its tasks, and what it asks.
#pragma once

#include <optional>
#include <string>

#include "core/environment.hpp"
#include "core/ipv4.hpp"
#include "os/file_descriptor.hpp"
#include "step_messages/control_message.hpp"
#include "step_messages/failure_report.hpp"

namespace amldist::spank {

/// The way to the srun that started the step.
struct SrunLink {
  Ipv4 address;
  ReportChannel channel;
};

/// The way, from what srun and slurmd put into the step's environment. nullopt without a listening srun, or with one
/// that Slurm reaches over IPv6 only.
[[nodiscard]] std::optional<SrunLink> read_srun_link(const EnvironmentReader& environment);

/// A datagram socket that never waits. Not connected: an srun with several addresses may answer from another than the
/// one it is reached by; the token tells its answers. Empty when there is none to be had.
[[nodiscard]] FileDescriptor open_socket() noexcept;

/// Sends one datagram, or does not.
void send_to(const SrunLink& target, int socket, const std::string& datagram) noexcept;

/// Sends and forgets: never waits, says nothing about success. An srun that is stopped finds it when it goes on.
void send_unheard(const SrunLink& target, const std::string& datagram);
/// The same for a report.
void send_report(const SrunLink& target, const FailureReport& report);

/// Sends until srun has heard, at most for a second. Returns whether it has.
bool tell(const SrunLink& target, const std::string& datagram);

/// Asks ten times a second until srun answers with a text, `attempts` times at most; nullopt if it does not. An empty
/// text: there is no such thing in this step.
[[nodiscard]] std::optional<std::string> ask(const SrunLink& target, MessageType question, Subject answer,
                                             int attempts);

}  // namespace amldist::spank
