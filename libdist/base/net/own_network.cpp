#include "base/net/own_network.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "base/net/socket.hpp"
#include "base/os/file_descriptor.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"

namespace amldist {
namespace {

std::string_view next_word(std::string_view& line) {
  constexpr std::string_view blanks = " \t\r";
  const auto start = line.find_first_not_of(blanks);
  if (start == std::string_view::npos) return line = {};
  line.remove_prefix(start);
  const std::string_view word = line.substr(0, line.find_first_of(blanks));
  line.remove_prefix(word.size());
  return word;
}

struct Interface {
  std::string name;
  Ipv4 address;
};

Result<std::vector<Interface>> own_interfaces() {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return Error{Errc::unavailable, "the interfaces of this machine cannot be listed"};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(all, &::freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != AF_INET) continue;
    sockaddr_in address = {};
    std::memcpy(&address, each->ifa_addr, sizeof address);
    found.push_back({each->ifa_name, Ipv4{ntohl(address.sin_addr.s_addr)}});
  }
  return found;
}

}  // namespace

std::optional<Ipv4> find_in_hosts(std::string_view content, std::string_view name) {
  while (!content.empty()) {
    std::string_view line = content.substr(0, content.find('\n'));
    content.remove_prefix(std::min(content.size(), line.size() + 1));
    line = line.substr(0, line.find('#'));
    const auto address = Ipv4::parse(next_word(line));
    if (!address) continue;
    for (std::string_view word = next_word(line); !word.empty(); word = next_word(line)) {
      if (word == name) return address;
    }
  }
  return std::nullopt;
}

std::optional<Ipv4> hosts_file_address(std::string_view name) {
  constexpr std::size_t most = 4UL << 20;
  return find_in_hosts(read_file_start("/etc/hosts", most), name);
}

std::string own_host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

Result<Ipv4> address_of_interface(std::string_view name, const std::optional<Ipv4Network>& network) {
  auto all = own_interfaces();
  if (!all) return all.error();
  for (const Interface& each : *all) {
    const bool fits = !each.address.is_loopback() && (!network || network->contains(each.address));
    if (each.name == name && fits) return each.address;
  }
  return Error{Errc::unavailable,
               text::concat({own_host_name(), " has no interface ", name, " with an IPv4 address for other nodes",
                             network ? text::concat({" in ", network->to_string()}) : std::string(),
                             ", but the site's interface=", name, " puts MASTER_ADDR there: ask the administrator"})};
}

namespace {}  // namespace

Result<Ipv4> source_address_towards(Ipv4 peer) {
  const auto failed = [peer] {
    return Error{Errc::unavailable,
                 text::concat({"there is no route to ", peer.to_string(), ": ", std::strerror(errno)})};
  };
  const FileDescriptor probe(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe) return failed();
  constexpr std::uint16_t discard_port = 9;
  const sockaddr_in target = socket_address(peer, discard_port);
  if (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&target), sizeof target) != 0) return failed();
  sockaddr_in own = {};
  socklen_t length = sizeof own;
  if (::getsockname(probe.get(), reinterpret_cast<sockaddr*>(&own), &length) != 0) return failed();
  return Ipv4{ntohl(own.sin_addr.s_addr)};
}

Result<std::string> interface_towards(Ipv4 peer) {
  const auto source = source_address_towards(peer);
  if (!source) return source.error();
  auto all = own_interfaces();
  if (!all) return all.error();
  const auto found = std::ranges::find(*all, *source, &Interface::address);
  if (found != all->end()) return found->name;
  return Error{Errc::unavailable, text::concat({"no interface of this machine has the address ", source->to_string()})};
}

}  // namespace amldist
