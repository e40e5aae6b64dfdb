#include "base/net/own_network.hpp"

#include <ifaddrs.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "base/net/socket.hpp"
#include "base/net/socket_address.hpp"
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
  IpAddress address;
};

Result<std::vector<Interface>> own_interfaces() {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return Error{Errc::unavailable, "the interfaces of this machine cannot be listed"};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(all, &::freeifaddrs);
  std::vector<Interface> found;
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    const SocketAddress address = each->ifa_addr != nullptr ? SocketAddress(*each->ifa_addr) : SocketAddress();
    if (address.family() != AF_UNSPEC) found.push_back({each->ifa_name, address.address()});
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
    const auto four = each.address.as_ipv4();
    const bool fits = four && !four->is_loopback() && (!network || network->contains(*four));
    if (each.name == name && fits) return *four;
  }
  return Error{Errc::unavailable,
               text::concat({own_host_name(), " has no interface ", name, " with an IPv4 address for other nodes",
                             network ? text::concat({" in ", network->to_string()}) : std::string(),
                             ", but the site's interface=", name, " puts MASTER_ADDR there: ask the administrator"})};
}

Result<Ipv4> source_address_towards(Ipv4 peer) {
  const auto source = source_address_to(peer);
  if (const auto four = source ? source->as_ipv4() : std::nullopt) return *four;
  return Error{Errc::unavailable,
               text::concat({"there is no route to ", peer.to_string(), ": ", std::strerror(errno)})};
}

Result<std::string> interface_towards(const IpAddress& peer) {
  const auto source = source_address_to(peer);
  if (!source) return Error{Errc::unavailable, text::concat({"there is no route to ", peer.to_string()})};
  auto all = own_interfaces();
  if (!all) return all.error();
  const auto found = std::ranges::find(*all, *source, &Interface::address);
  if (found != all->end()) return found->name;
  return Error{Errc::unavailable, text::concat({"no interface of this machine has the address ", source->to_string()})};
}

}  // namespace amldist
