// Where this `aml-dist ray` stands in its step, from the variables of kind ray.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/net/ipv4.hpp"
#include "base/text/environment.hpp"
#include "base/text/result.hpp"
#include "launch/rendezvous/ray_port.hpp"
#include "world/wireup/key.hpp"

namespace amldist::ray {

struct Place {
  std::uint32_t node = 0;  ///< NODE_RANK; 0 is the head
  std::uint32_t nodes = 1;
  std::string host;                ///< this node, as Slurm calls it
  std::vector<std::string> hosts;  ///< all nodes, in Slurm's order, which need not be that of `node`
  Ipv4 head;
  std::uint16_t master_port = 0;
  std::string step;  ///< "JOB.STEP"
  world::Credentials credentials;

  [[nodiscard]] bool is_head() const noexcept { return node == 0; }
  [[nodiscard]] std::uint16_t port(launch::RayPort purpose) const noexcept {
    return launch::ray_port(master_port, purpose);
  }
  /// What RAY_ADDRESS is, with the head as a number.
  [[nodiscard]] std::string address() const;
};

/// Errors: invalid_argument outside a step of kind ray; unavailable where the head's name is not found.
[[nodiscard]] Result<Place> read_place(const EnvironmentReader& environment);

}  // namespace amldist::ray
