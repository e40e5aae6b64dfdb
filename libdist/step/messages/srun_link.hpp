// How a node talks to the srun that started its step: reports about its tasks, and questions. All datagrams are sealed
// here on their way out, and unsealed on their way in.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/net/datagram_socket.hpp"
#include "base/net/ip_address.hpp"
#include "base/text/environment.hpp"
#include "step/messages/control_message.hpp"
#include "step/messages/failure_report.hpp"

namespace amldist::step {

/// Set by slurmd: the address from which the launch came.
inline constexpr const char* srun_host_variable = "SLURM_SRUN_COMM_HOST";

/// A number that no other process has.
[[nodiscard]] std::uint64_t new_sender() noexcept;

/// Where the srun that started the step listens, or its stand-in does.
struct SrunLink {
  IpAddress address;
  ReportChannel channel;
  std::uint64_t sender = new_sender();  ///< who sends, for srun: this process and its copies
};

/// Reads it from what srun and slurmd put into the step's environment. nullopt if no srun listens.
[[nodiscard]] std::optional<SrunLink> read_srun_link(const EnvironmentReader& environment);

/// A node's way to srun. Not connected: an srun with several addresses may answer from another address; its answers are
/// recognised by their code.
class NodeSocket {
 public:
  /// Takes answers of at most `longest` bytes. False as a condition if the system gives no socket.
  explicit NodeSocket(const SrunLink& target, std::size_t longest = longest_datagram);
  explicit operator bool() const noexcept { return static_cast<bool>(socket_); }
  [[nodiscard]] int descriptor() const noexcept { return socket_.descriptor(); }

  /// Sends a message. Like any datagram it may be lost.
  void send(std::string_view message);
  /// srun's answer, as soon as one is there, or an empty text when the time is over. Whatever else comes is dropped:
  /// without a code, or not an answer to one of the last messages of this socket, sent in the last ten seconds.
  [[nodiscard]] std::string answer(std::chrono::milliseconds patience);

 private:
  [[nodiscard]] std::string next();

  SrunLink target_;
  DatagramSocket socket_;
  std::string buffer_;
  std::array<std::uint64_t, 16> asked_{};  ///< times in the stamps of the last messages
  std::size_t sent_ = 0;
};

/// Sends without waiting for a reply. An srun that is stopped reads it when it continues.
void send_without_reply(const SrunLink& target, std::string_view message);

/// How long slurmstepd waits for srun's confirmation: some 25 datagrams, of which a flood may cost most. Once it has
/// waited in vain, it does not wait again.
inline constexpr std::chrono::milliseconds patience_with_srun{2000};

/// Sends until srun confirms, for at most `patience_with_srun`. Returns whether srun has confirmed.
bool tell(const SrunLink& target, std::string_view message);

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
