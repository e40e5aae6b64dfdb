// How a node talks to the srun that started its step: reports about its tasks, and questions.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "base/net/ipv4.hpp"
#include "base/os/file_descriptor.hpp"
#include "base/text/environment.hpp"
#include "step/messages/control_message.hpp"
#include "step/messages/failure_report.hpp"

namespace amldist::step {

/// Set by slurmd: the address from which the launch came.
inline constexpr const char* srun_host_variable = "SLURM_SRUN_COMM_HOST";

/// Where the srun that started the step listens, or its stand-in does.
struct SrunLink {
  Ipv4 address;
  ReportChannel channel;
};

/// Reads it from what srun and slurmd put into the step's environment. nullopt if no srun listens, or if Slurm reaches
/// it over IPv6 only.
[[nodiscard]] std::optional<SrunLink> read_srun_link(const EnvironmentReader& environment);

/// A datagram socket that never blocks. Not connected: an srun with several addresses may answer from another address;
/// its answers are recognised by the token. Empty if the system gives no socket.
[[nodiscard]] FileDescriptor open_socket() noexcept;

/// Sends one datagram. Like any datagram it may be lost.
void send_to(const SrunLink& target, int socket, const std::string& datagram) noexcept;

/// Sends without waiting for a reply. An srun that is stopped reads it when it continues.
void send_without_reply(const SrunLink& target, const std::string& datagram);
/// The same for a failure report.
void send_report(const SrunLink& target, const FailureReport& report);

/// Sends until srun confirms, for at most a second. Returns whether srun has confirmed.
bool tell(const SrunLink& target, const std::string& datagram);

/// Reports this node to srun until that answers, for at most `patience`: `start`, `not_yet` or `refuse_step`; nullopt
/// without an answer. A burst of many nodes may lose datagrams, so each repeats its own at moments of its own. With
/// `until_start` it waits on while the answer is `not_yet`, and `patience` is for each silence.
[[nodiscard]] std::optional<MessageType> report_node(const SrunLink& target, std::string_view host,
                                                     std::chrono::milliseconds patience, bool until_start);

/// Asks ten times a second until srun answers with a text, `attempts` times at most; nullopt if it does not. An empty
/// text: srun says that this step has none.
[[nodiscard]] std::optional<std::string> ask(const SrunLink& target, MessageType question, Subject answer,
                                             int attempts);

}  // namespace amldist::step
