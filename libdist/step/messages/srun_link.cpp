#include "step/messages/srun_link.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/file_descriptor.hpp"
#include "base/time/clock.hpp"
#include "step/messages/datagram.hpp"

namespace amldist::step {
namespace {

constexpr int pause_ms = 100;

/// Whether something has come before the pause is over.
bool wait_for_answer(int socket, int most_ms = pause_ms) noexcept {
  pollfd answer = {socket, POLLIN, 0};
  return ::poll(&answer, 1, most_ms) > 0;
}

/// Between half of `pause` and one and a half of it.
int jittered(int pause) noexcept {
  std::uint32_t random = 0;
  if (::getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random) return pause;
  return pause / 2 + static_cast<int>(random % static_cast<std::uint32_t>(pause + 1));
}

/// The next datagram, whose text is in `buffer`; empty if there is no datagram.
std::string_view receive(int socket, std::span<char> buffer) noexcept {
  const ssize_t got = ::recv(socket, buffer.data(), buffer.size(), MSG_DONTWAIT);
  return {buffer.data(), got > 0 ? static_cast<std::size_t>(got) : 0};
}

}  // namespace

std::optional<SrunLink> read_srun_link(const EnvironmentReader& environment) {
  const auto channel = ReportChannel::parse(environment(report_variable).value_or(""));
  // Set by slurmd: the address from which the launch came, and to which slurmstepd itself connects.
  const auto address = Ipv4::parse(environment(srun_host_variable).value_or(""));
  if (!channel || !address) return std::nullopt;
  return SrunLink{*address, *channel};
}

FileDescriptor open_socket() noexcept {
  return FileDescriptor(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

void send_to(const SrunLink& target, int socket, const std::string& datagram) noexcept {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(target.channel.port);
  address.sin_addr.s_addr = htonl(target.address.bits);
  static_cast<void>(::sendto(socket, datagram.data(), datagram.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                             reinterpret_cast<const sockaddr*>(&address), sizeof address));
}

void send_without_reply(const SrunLink& target, const std::string& datagram) {
  constexpr int copies = 2;  // against a lost datagram; srun ignores the second
  const FileDescriptor socket = open_socket();
  for (int i = 0; socket && i < copies; ++i) send_to(target, socket.get(), datagram);
}

void send_report(const SrunLink& target, const FailureReport& report) {
  send_without_reply(target, report.to_datagram(target.channel.token));
}

bool tell(const SrunLink& target, const std::string& datagram) {
  constexpr int attempts = 10;
  const FileDescriptor socket = open_socket();
  std::array<char, longest_datagram> buffer;
  for (int i = 0; socket && i < attempts; ++i) {
    send_to(target, socket.get(), datagram);
    if (!wait_for_answer(socket.get())) continue;
    if (parse_message_type(receive(socket.get(), buffer), target.channel.token) == MessageType::heard) return true;
  }
  return false;
}

std::optional<MessageType> report_node(const SrunLink& target, std::string_view host,
                                       std::chrono::milliseconds patience, bool until_start) {
  constexpr int longest_pause_ms = 1000;
  const FileDescriptor socket = open_socket();
  const std::string datagram = to_datagram(Subject::here, host, target.channel.token);
  std::array<char, longest_datagram> buffer;
  int pause = pause_ms;
  auto heard_at = Clock::now();
  while (socket && Clock::now() - heard_at < patience) {
    send_to(target, socket.get(), datagram);
    const auto again = Clock::now() + std::chrono::milliseconds(jittered(pause));
    pause = std::min(2 * pause, longest_pause_ms);
    for (auto now = Clock::now(); now < again; now = Clock::now()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(again - now);
      if (!wait_for_answer(socket.get(), static_cast<int>(left.count()))) break;
      const auto answer = parse_message_type(receive(socket.get(), buffer), target.channel.token);
      if (!answer) continue;
      if (answer != MessageType::not_yet || !until_start) return answer;
      heard_at = Clock::now();
    }
  }
  return std::nullopt;
}

std::optional<std::string> ask(const SrunLink& target, MessageType question, Subject answer, int attempts) {
  const FileDescriptor socket = open_socket();
  const std::string datagram = to_datagram(question, target.channel.token);
  std::vector<char> buffer(longest_answer);
  for (int i = 0; socket && i < attempts; ++i) {
    send_to(target, socket.get(), datagram);
    if (!wait_for_answer(socket.get())) continue;
    const std::string_view heard = receive(socket.get(), buffer);
    if (const auto text = parse_text(answer, heard, target.channel.token)) return std::string(*text);
    if (parse_message_type(heard, target.channel.token) == MessageType::no_address) return std::string();
    constexpr timespec pause = {0, pause_ms * 1'000'000L};
    static_cast<void>(::nanosleep(&pause, nullptr));  // the answer "not yet" comes at once
  }
  return std::nullopt;
}

}  // namespace amldist::step
