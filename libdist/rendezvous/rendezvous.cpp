#include "rendezvous/rendezvous.hpp"

#include <numeric>

#include "core/text.hpp"
#include "rendezvous/stamp.hpp"

namespace amldist {
namespace {

using text::concat;
using text::quote;

/// FNV-1a over bytes. Separators keep ("ab", 1) and ("a", "b1") apart.
class Fnv1a {
 public:
  void add(std::string_view bytes) noexcept {
    for (const char c : bytes) mix(static_cast<unsigned char>(c));
    mix(0xff);
  }
  void add(std::uint32_t number) noexcept {
    for (int shift = 0; shift < 32; shift += 8) mix(static_cast<unsigned char>(number >> shift));
  }
  [[nodiscard]] std::uint64_t value() const noexcept { return hash_; }

 private:
  void mix(unsigned char byte) noexcept { hash_ = (hash_ ^ byte) * 0x100000001b3ULL; }
  std::uint64_t hash_ = 0xcbf29ce484222325ULL;
};

/// Distance between the ports of consecutive steps, for kinds that use one port per task of a node (TF_CONFIG).
constexpr std::uint32_t ports_per_step = 64;

/// The smallest stride >= ports_per_step that has no factor in common with `count`, so that `count` consecutive steps
/// get `count` different ports.
std::uint32_t stride_for(std::uint32_t count) noexcept {
  std::uint32_t stride = count > 2 * ports_per_step ? ports_per_step : 1;
  while (std::gcd(stride, count) != 1) ++stride;
  return stride;
}

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

Result<PortChoice> choose_port(const Spec& spec, const RendezvousFacts& facts, const EnvironmentReader& environment) {
  if (spec.master_port) return PortChoice{*spec.master_port, Origin::option};
  if (const auto own = users_own(environment, "MASTER_PORT")) {
    const auto port = text::to_number(*own, 65535);
    if (!port || *port == 0) {
      return Error{Errc::invalid_argument, concat({"MASTER_PORT is set to ", quote(*own),
                                                   ", which is no port from 1 to 65535: unset it or correct it"})};
    }
    return PortChoice{static_cast<std::uint16_t>(*port), Origin::environment};
  }
  if (const auto reserved = first_reserved_port(environment)) return PortChoice{*reserved, Origin::reserved};
  if (facts.ports.empty()) {
    return Error{Errc::unavailable, "no port is left in the site's port_range: give master_port=N"};
  }
  return PortChoice{hashed_port(facts.ports, facts.job, facts.step_id), Origin::computed};
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

std::uint16_t hashed_port(const PortRanges& ports, const JobName& job, std::uint32_t step_id) noexcept {
  Fnv1a hash;
  hash.add(job.cluster);
  hash.add(job.job_id);
  hash.add(job.restarts);
  const std::uint64_t count = ports.size();
  const std::uint64_t start = hash.value() % count;
  const std::uint64_t stride = stride_for(static_cast<std::uint32_t>(count));
  return ports.at(static_cast<std::uint32_t>((start + stride * step_id) % count));
}

std::optional<std::uint16_t> first_reserved_port(const EnvironmentReader& environment) {
  const auto text = environment("SLURM_STEP_RESV_PORTS");
  if (!text) return std::nullopt;
  const auto port = text::to_number(std::string_view(*text).substr(0, text->find_first_of("-,")), 65535);
  if (!port || *port == 0) return std::nullopt;
  return static_cast<std::uint16_t>(*port);
}

Result<Rendezvous> settle(const Spec& spec, const RendezvousFacts& facts, const EnvironmentReader& environment,
                          std::vector<std::string>& notes) {
  Choice address = choose_address(spec, facts, environment);
  // srun's choice was validated with the launch record. It may name an interface (master_address.hpp).
  if (address.origin != Origin::computed && !is_host(address.value)) {
    return Error{Errc::invalid_argument,
                 concat({"MASTER_ADDR is set to ", quote(address.value),
                         ", which is no host name and no IPv4 address: unset it or correct it"})};
  }
  const auto port = choose_port(spec, facts, environment);
  if (!port) return port.error();
  Rendezvous rendezvous{std::move(address.value), port->port, address.origin, port->origin};
  const bool own_address = rendezvous.address_origin == Origin::environment;
  const bool own_port = rendezvous.port_origin == Origin::environment;
  if (own_address || own_port) {
    const std::string number = std::to_string(rendezvous.port);
    notes.push_back(
        concat({"keeping your ", own_address ? concat({"MASTER_ADDR=", rendezvous.address}) : std::string(),
                own_address && own_port ? " and " : "", own_port ? concat({"MASTER_PORT=", number}) : std::string(),
                ": unset to let aml-dist choose"}));
  }
  return rendezvous;
}

}  // namespace amldist
