// How a node talks to the srun that started its step: what it tells about its tasks, and what it asks.
#pragma once

#include <optional>
#include <string>

#include "base/net/ipv4.hpp"
#include "base/os/file_descriptor.hpp"
#include "base/text/environment.hpp"
#include "step/messages/control_message.hpp"
#include "step/messages/failure_report.hpp"

namespace amldist::step {

/// Set by slurmd: the address that the launch came from.
inline constexpr const char* srun_host_variable = "SLURM_SRUN_COMM_HOST";

/// Where the srun that started the step listens, or a node in its place.
struct SrunLink {
  Ipv4 address;
  ReportChannel channel;
};

/// Reads it from what srun and slurmd put into the step's environment. nullopt if no srun listens, or if Slurm reaches
/// it over IPv6 only.
[[nodiscard]] std::optional<SrunLink> read_srun_link(const EnvironmentReader& environment);

/// A datagram socket that never blocks. Not connected: an srun with several addresses may answer from another one than
/// that which it is reached by; its answers are known by the token. Empty if the system gives none.
[[nodiscard]] FileDescriptor open_socket() noexcept;

/// Sends one datagram. It may be lost, as any.
void send_to(const SrunLink& target, int socket, const std::string& datagram) noexcept;

/// Sends without waiting for a reply. An srun that is stopped reads it when it goes on.
void send_without_reply(const SrunLink& target, const std::string& datagram);
/// The same for a failure report.
void send_report(const SrunLink& target, const FailureReport& report);

/// Sends until srun confirms, for at most a second. Returns whether it has.
bool tell(const SrunLink& target, const std::string& datagram);

/// Asks ten times a second until srun answers with a text, `attempts` times at most; nullopt if it does not. An empty
/// text: srun says that this step has none.
[[nodiscard]] std::optional<std::string> ask(const SrunLink& target, MessageType question, Subject answer,
                                             int attempts);

}  // namespace amldist::step
