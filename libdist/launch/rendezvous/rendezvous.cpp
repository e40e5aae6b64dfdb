#include "launch/rendezvous/rendezvous.hpp"

#include "base/text/text.hpp"
#include "launch/rendezvous/ray_port.hpp"
#include "launch/rendezvous/stamp.hpp"
#include "launch/rendezvous/step_port.hpp"

namespace amldist::launch {
namespace {

using text::concat;
using text::quote;

struct Choice {
  std::string value;
  Origin origin;
};

Choice choose_address(const Spec& spec, const RendezvousFacts& facts, const EnvironmentReader& environment) {
  if (spec.master_addr.form == MasterAddress::Form::host) return {spec.master_addr.host, Origin::option};
  if (spec.master_addr.form == MasterAddress::Form::site_default) {
    if (auto own = users_own(environment, "MASTER_ADDR")) return {std::move(*own), Origin::environment};
  }
  return {facts.address, Origin::computed};
}

struct PortChoice {
  std::uint16_t port;
  Origin origin;
};

/// Slurm's reserved ports are not enough for Ray: a step has one or two, and its neighbour the next ones.
Result<PortChoice> choose_block(const RendezvousFacts& facts) {
  const std::uint16_t first = step_port_block(facts.ports, facts.job, facts.step_id, ray_ports);
  if (first != 0) return PortChoice{first, Origin::computed};
  return Error{Errc::unavailable, concat({"the site's port_range has no ", std::to_string(ray_ports),
                                          " successive ports for Ray: give master_port=N"})};
}

Result<PortChoice> choose_port(const Spec& spec, const RendezvousFacts& facts, const EnvironmentReader& environment) {
  if (spec.master_port) return PortChoice{*spec.master_port, Origin::option};
  if (const auto own = users_own(environment, "MASTER_PORT")) {
    const auto port = text::to_number(*own, 65535);
    if (!port || *port == 0) {
      return Error{Errc::invalid_argument, concat({"MASTER_PORT is set to ", quote(*own),
                                                   ", which is not a port from 1 to 65535: unset it or correct it"})};
    }
    return PortChoice{static_cast<std::uint16_t>(*port), Origin::environment};
  }
  if (spec.kind == Kind::ray) return choose_block(facts);
  if (const auto reserved = reserved_port(environment, PortPurpose::master))
    return PortChoice{*reserved, Origin::reserved};
  if (facts.ports.empty()) {
    return Error{Errc::unavailable, "no port is left in the site's port_range: give master_port=N"};
  }
  return PortChoice{step_port(facts.ports, facts.job, facts.step_id), Origin::computed};
}

}  // namespace

std::string_view to_string(Origin origin) noexcept {
  switch (origin) {
    case Origin::option:
      return "option";
    case Origin::environment:
      return "your environment";
    case Origin::reserved:
      return "Slurm's reserved ports";
    case Origin::computed:
      return "aml-dist";
  }
  return "unknown";
}

Result<Rendezvous> settle(const Spec& spec, const RendezvousFacts& facts, const EnvironmentReader& environment,
                          std::vector<std::string>& notes) {
  Choice address = choose_address(spec, facts, environment);
  // srun's choice was validated with the launch record. It may name an interface (master_address.hpp).
  if (address.origin != Origin::computed && !is_host(address.value)) {
    return Error{Errc::invalid_argument,
                 concat({"MASTER_ADDR is set to ", quote(address.value),
                         ", which is neither a host name nor an IPv4 address: unset it or correct it"})};
  }
  const auto port = choose_port(spec, facts, environment);
  if (!port) return port.error();
  if (constexpr int last = 65536 - ray_ports; spec.kind == Kind::ray && port->port > last) {
    return Error{Errc::mismatch, concat({"MASTER_PORT=", std::to_string(port->port), " leaves no room for the ",
                                         std::to_string(ray_ports), " ports of Ray: give a master_port of at most ",
                                         std::to_string(last)})};
  }
  Rendezvous rendezvous{std::move(address.value), port->port, address.origin, port->origin, facts.node_hosts};
  const bool own_address = rendezvous.address_origin == Origin::environment;
  const bool own_port = rendezvous.port_origin == Origin::environment;
  const bool is_users = own_address || rendezvous.address_origin == Origin::option;
  const std::string doubt = is_users && facts.doubt ? facts.doubt(rendezvous.address) : std::string();
  if (own_address || own_port) {
    const std::string number = std::to_string(rendezvous.port);
    notes.push_back(concat(
        {"keeping your ", own_address ? concat({"MASTER_ADDR=", rendezvous.address}) : std::string(),
         own_address && own_port ? " and " : "", own_port ? concat({"MASTER_PORT=", number}) : std::string(),
         own_address && !doubt.empty() ? concat({", but ", doubt}) : std::string(), ": unset to let aml-dist choose"}));
  }
  if (!own_address && !doubt.empty()) {
    notes.push_back(concat({"master_addr=", rendezvous.address, ": ", doubt, ": drop the key to let aml-dist choose"}));
  }
  return rendezvous;
}

}  // namespace amldist::launch
