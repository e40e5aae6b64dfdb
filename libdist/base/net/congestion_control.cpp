#include "base/net/congestion_control.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <cstring>

#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"

namespace amldist::congestion_control {
namespace {

using Name = std::array<char, 16>;  // TCP_CA_NAME_MAX of the kernel

Name current(const FileDescriptor& connection) noexcept {
  Name out = {};
  socklen_t length = out.size() - 1;
  if (::getsockopt(connection.get(), IPPROTO_TCP, TCP_CONGESTION, out.data(), &length) != 0) out = {};
  return out;
}

bool set(const FileDescriptor& connection, std::string_view name) noexcept {
  return ::setsockopt(connection.get(), IPPROTO_TCP, TCP_CONGESTION, name.data(),
                      static_cast<socklen_t>(name.size())) == 0;
}

}  // namespace

bool is_valid(std::string_view choice) {
  if (choice == automatic || choice == of_system) return true;
  const FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return !socket || set(socket, choice);  // without a socket nobody can tell
}

std::vector<std::string> choices() {
  std::vector<std::string> out = {std::string(automatic), std::string(of_system)};
  const std::string allowed = first_line_of("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
  for (const std::string_view each : text::split(allowed, ' ')) {
    if (!each.empty()) out.emplace_back(each);
  }
  return out;
}

void choose(const FileDescriptor& connection, std::string_view choice) noexcept {
  if (choice == of_system) return;
  if (choice != automatic) static_cast<void>(set(connection, choice));
  else if (std::string_view(current(connection).data()).starts_with("bbr")) static_cast<void>(set(connection, "reno"));
}

std::string name_of(const FileDescriptor& connection) { return current(connection).data(); }

}  // namespace amldist::congestion_control
