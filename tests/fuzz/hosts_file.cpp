// /etc/hosts, in which slurmstepd looks for the node's own name; and IPv4 addresses and networks as such.
#include <sstream>
#include <string>

#include "base/net/ipv4.hpp"
#include "base/net/own_network.hpp"
#include "fuzz.hpp"

namespace amldist::fuzz::hosts_file {
namespace {

/// hosts(5), said once more in another way.
std::optional<Ipv4> oracle(const std::string& content, std::string_view name) {
  std::istringstream lines(content);
  for (std::string line; std::getline(lines, line);) {
    line.resize(std::min(line.find('#'), line.size()));
    for (char& c : line) {
      if (c == '\v' || c == '\f') c = 'x';  // a stream takes them for blanks; hosts(5) does not
    }
    std::istringstream words(line);
    std::string address;
    words >> address;
    for (std::string word; words >> word;) {
      if (word == name && Ipv4::parse(address)) return Ipv4::parse(address);
    }
  }
  return std::nullopt;
}

void check_addresses(std::string_view text) {
  if (const auto address = Ipv4::parse(text)) require(address->to_string() == text, "one address has one text");
  if (const auto network = Ipv4Network::parse(text)) {
    require(Ipv4Network::parse(network->to_string()) == network, "a network that is written is the same");
    require(network->contains(network->base), "a network has its base");
  }
}

}  // namespace

const std::string_view separator = "\n";

/// The name in the first line, the file behind it.
void try_input(std::string_view input) {
  Input lines(input);
  const std::string_view name = lines.line();
  const std::string content(lines.rest());
  check_addresses(name);
  const auto found = within(4096, [&] { return find_in_hosts(content, name); });
  const bool odd = name.find_first_of("\v\f") != name.npos;
  if (!odd) require(found == oracle(content, name), "the file gives the name this address");
}

}  // namespace amldist::fuzz::hosts_file
