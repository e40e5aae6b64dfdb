// Sets of ports: port_range=, ip_local_reserved_ports, srun's record. The oracle is a bit for each port.
#include "base/text/port_ranges.hpp"

#include <bitset>

#include "fuzz.hpp"
#include "launch/rendezvous/step_port.hpp"

namespace amldist::fuzz::port_ranges {
namespace {

using Ports = std::bitset<65536>;

/// The set as its own to_string() writes it.
Ports bits_of(const PortRanges& ranges) {
  Ports ports;
  Input pieces("");
  const std::string text = ranges.to_string();
  for (std::size_t at = 0; at < text.size();) {
    char* end = nullptr;
    const unsigned long low = std::strtoul(text.c_str() + at, &end, 10);
    const unsigned long high = *end == '-' ? std::strtoul(end + 1, &end, 10) : low;
    for (unsigned long port = low; port <= high; ++port) ports.set(port);
    at = static_cast<std::size_t>(end - text.c_str()) + 1;
  }
  return ports;
}

void check_set(const PortRanges& ranges) {
  const Ports ports = bits_of(ranges);
  require(!ports.test(0), "port 0 is none");
  require(ports.count() == ranges.size(), "size() counts the ports");
  if (ranges.empty()) return;
  for (const std::uint32_t index : {0U, ranges.size() / 2, ranges.size() - 1}) {
    const std::uint16_t port = ranges.at(index);
    require(ports.test(port) && ranges.contains(port), "at() gives a port of the set");
    require((ports << (65536U - port)).count() == index, "with as many smaller ones as asked");
  }
  const auto again = PortRanges::parse(ranges.to_string());
  require(again && *again == ranges, "ranges that are written are the same");
}

}  // namespace

const std::string_view separator = ",";

/// Two sets, in two lines.
void try_input(std::string_view input) {
  Input lines(input);
  const std::string_view one_text = lines.line();
  const auto one = within(one_text.size() * 64 + 4096, [one_text] { return PortRanges::parse(one_text); });
  if (!one) return require_sentence(one.error().message);
  check_set(*one);
  const auto other = PortRanges::parse(lines.line());
  if (!other) return require_sentence(other.error().message);
  const PortRanges rest = one->without(*other);
  check_set(rest);
  require(bits_of(rest) == (bits_of(*one) & ~bits_of(*other)), "without() is the difference of two sets");
  if (rest.empty()) return;
  const std::uint16_t port = launch::step_port(rest, {"cluster", 12, 0}, 3);
  require(rest.contains(port), "a step's port is one of the site's");
  if (rest.size() > 1) require(launch::step_port(rest, {"cluster", 12, 0}, 4) != port, "neighbouring steps differ");
}

}  // namespace amldist::fuzz::port_ranges
