#include "aml_dist/common/hops.hpp"

#include <span>
#include <vector>

#include "base/text/text.hpp"
#include "shared/programs.hpp"

namespace amldist::tools {
namespace {

using text::concat;

/// Hosts of one leaf switch beside each other; a bar for each level between others.
std::string drawing(const launch::NetworkTopology& network, std::span<const std::string> hosts) {
  constexpr std::size_t most_drawn = 64;
  std::string out;
  for (std::size_t i = 0; i < hosts.size() && i < most_drawn; ++i) {
    const std::uint32_t links = i == 0 ? 0 : network.hops(hosts[i - 1], hosts[i]);
    if (i > 0) out += links > 2 ? concat({" ", std::string(links / 2 - 1, '|'), " "}) : " ";
    out += hosts[i];
  }
  return hosts.size() > most_drawn ? out + " ..." : out;
}

std::string line(const launch::NetworkTopology& network, std::string_view name, std::span<const std::string> hosts) {
  return concat(
      {name, std::to_string(network.hops_along(hosts)), " links between neighbours: ", drawing(network, hosts), "\n"});
}

}  // namespace

Result<launch::NetworkTopology> read_topology(const std::string& file) {
  if (file.empty()) return launch::NetworkTopology::of_cluster();
  const auto text = commands::read_file(file, launch::NetworkTopology::longest_text);
  if (!text) return Error{text.error().code, concat({"--topology ", text::quote(file), ": ", text.error().message})};
  return launch::NetworkTopology::parse(*text);
}

std::string describe_hops(const launch::NetworkTopology& network, const launch::Placement& placement) {
  const std::vector<std::string> hosts = hosts_in_rank_order(placement);
  return concat(
      {line(network, "as placed:          ", hosts), line(network, "along the switches: ", network.in_order(hosts))});
}

}  // namespace amldist::tools
