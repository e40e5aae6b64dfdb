#include "aml_dist/ray/place.hpp"

#include <algorithm>
#include <chrono>
#include <optional>

#include "base/net/name_lookup.hpp"
#include "base/net/own_network.hpp"
#include "base/text/hostlist.hpp"
#include "base/text/text.hpp"
#include "launch/rendezvous/stamp.hpp"
#include "world/wireup/step_secret.hpp"

namespace amldist::ray {
namespace {

using text::concat;

Error outside() {
  return {Errc::invalid_argument,
          "ray: this is no step of kind ray: start it with srun --ntasks-per-node=1 --aml-dist=ray aml-dist ray -- "
          "COMMAND"};
}

Result<Ipv4> head_address(const std::string& host) {
  constexpr auto patience = std::chrono::seconds(20);
  if (const auto literal = Ipv4::parse(host)) return *literal;
  const auto found = addresses_of(host, Clock::now() + patience);
  if (!found) return found.error();
  for (const IpAddress& each : *found) {
    if (const auto four = Ipv4::parse(each.to_string())) return *four;
  }
  return Error{Errc::unavailable, concat({"ray: ", text::quote(host), " has no IPv4 address: use master_addr=ip"})};
}

}  // namespace

std::string Place::address() const { return concat({head.to_string(), ":", std::to_string(master_port)}); }

Result<Place> read_place(const EnvironmentReader& environment) {
  constexpr std::uint64_t most_nodes = 65536;
  const auto stamp = launch::Stamp::read(environment);
  if (!stamp || stamp->value_of("kind") != "ray") return outside();
  const auto number = [&](std::string_view name, std::uint64_t most) {
    return text::to_number(environment(name).value_or(""), most);
  };
  const auto node = number("NODE_RANK", most_nodes);
  const auto nodes = number("WORLD_SIZE", most_nodes);
  const auto port = number("MASTER_PORT", 65536 - launch::ray_ports);
  if (!node || !nodes || *node >= *nodes || !port || *port == 0) return outside();
  auto head = head_address(environment("MASTER_ADDR").value_or(""));
  if (!head) return head.error();
  const auto credentials = world::credentials_of_environment(environment);
  if (!credentials) return credentials.error();
  const auto hosts = Hostlist::parse(environment("SLURM_STEP_NODELIST").value_or(""));
  return Place{static_cast<std::uint32_t>(*node),
               static_cast<std::uint32_t>(*nodes),
               environment("SLURMD_NODENAME").value_or(own_host_name()),
               hosts ? hosts->expand() : std::vector<std::string>(),
               *head,
               static_cast<std::uint16_t>(*port),
               stamp->step(),
               *credentials};
}

}  // namespace amldist::ray
