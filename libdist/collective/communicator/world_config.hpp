// A caller's description of a world, which overrides the environment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "world/bootstrap/store.hpp"
#include "world/wireup/key.hpp"

namespace amldist::collective {

struct WorldConfig {
  struct RankAndSize {
    std::uint32_t rank = 0;
    std::uint32_t size = 1;
  };
  std::optional<RankAndSize> rank_and_size;   ///< nullopt: the environment's
  std::string address;                        ///< of rank 0, for MASTER_ADDR; empty: the environment's
  std::uint16_t port = 0;                     ///< for MASTER_PORT; 0: the environment's
  std::optional<world::Key> secret;           ///< nullopt: the environment's
  std::optional<world::KeyValueStore> store;  ///< how the ranks find rank 0, in place of an address
  std::string name;                           ///< distinguishes worlds of one step
  std::string label;                          ///< for readers of the flight recorder; empty: "world"

  /// Whether the world has its own rendezvous, so that a process may be in it and in others at the same time.
  [[nodiscard]] bool has_own_place() const noexcept { return store || !address.empty() || port != 0; }
};

}  // namespace amldist::collective
