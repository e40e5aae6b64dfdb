#include "spank/failure_sender.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <string>

#include "core/file_descriptor.hpp"
#include "rendezvous/datagram.hpp"

namespace amldist::spank {
namespace {

bool is_heard(int socket, std::uint64_t token) {
  std::array<char, longest_datagram> answer;
  const ssize_t got = ::recv(socket, answer.data(), answer.size(), MSG_DONTWAIT);
  return got > 0 && parse_word({answer.data(), static_cast<std::size_t>(got)}, token) == Word::heard;
}

}  // namespace

std::optional<ReportTarget> read_report_target(const EnvironmentReader& environment) {
  const auto channel = ReportChannel::parse(environment(report_variable).value_or(""));
  // slurmd writes it: the address that the launch came from, and to which slurmstepd itself connects.
  const auto address = Ipv4::parse(environment("SLURM_SRUN_COMM_HOST").value_or(""));
  if (!channel || !address) return std::nullopt;
  return ReportTarget{*address, *channel};
}

FileDescriptor open_socket() noexcept {
  return FileDescriptor(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

void send_to(const ReportTarget& target, int socket, const std::string& datagram) noexcept {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(target.channel.port);
  address.sin_addr.s_addr = htonl(target.address.bits);
  static_cast<void>(::sendto(socket, datagram.data(), datagram.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                             reinterpret_cast<const sockaddr*>(&address), sizeof address));
}

void send_report(const ReportTarget& target, const FailureReport& report) {
  constexpr int copies = 2;  // against a lost datagram; srun takes no notice of the second
  const FileDescriptor socket = open_socket();
  const std::string datagram = report.to_datagram(target.channel.token);
  for (int i = 0; socket && i < copies; ++i) send_to(target, socket.get(), datagram);
}

bool tell_end(const ReportTarget& target, const WorkerEnd& end) {
  constexpr int attempts = 10;
  constexpr int wait_ms = 100;
  const FileDescriptor socket = open_socket();
  const std::string datagram = end.to_datagram(target.channel.token);
  for (int i = 0; socket && i < attempts; ++i) {
    send_to(target, socket.get(), datagram);
    pollfd answer = {socket.get(), POLLIN, 0};
    if (::poll(&answer, 1, wait_ms) > 0 && is_heard(socket.get(), target.channel.token)) return true;
  }
  return false;
}

}  // namespace amldist::spank
