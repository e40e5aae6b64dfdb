#include "spank/failure_sender.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <string>

#include "core/file_descriptor.hpp"

namespace amldist::spank {

std::optional<ReportTarget> read_report_target(const EnvironmentReader& environment) {
  const auto channel = ReportChannel::parse(environment(report_variable).value_or(""));
  // slurmd writes it: the address that the launch came from, and to which slurmstepd itself connects.
  const auto address = Ipv4::parse(environment("SLURM_SRUN_COMM_HOST").value_or(""));
  if (!channel || !address) return std::nullopt;
  return ReportTarget{*address, *channel};
}

void send_report(const ReportTarget& target, const FailureReport& report) {
  constexpr int copies = 2;  // against a lost datagram; srun takes no notice of the second
  const FileDescriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(target.channel.port);
  address.sin_addr.s_addr = htonl(target.address.bits);
  const std::string datagram = report.to_datagram(target.channel.token);
  for (int i = 0; i < copies; ++i) {
    static_cast<void>(::sendto(socket.get(), datagram.data(), datagram.size(), MSG_NOSIGNAL,
                               reinterpret_cast<const sockaddr*>(&address), sizeof address));
  }
}

}  // namespace amldist::spank
