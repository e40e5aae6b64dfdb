// The ports of Ray on each node of a step: MASTER_PORT and those behind it. Ray's workers listen on ports of the
// kernel's choice.
#pragma once

#include <cstdint>

namespace amldist::launch {

/// What a port is for, by its distance from MASTER_PORT. Published: scripts may compute them.
enum class RayPort : std::uint8_t {
  gcs,                   ///< MASTER_PORT itself, on the head: what RAY_ADDRESS names
  meeting,               ///< on the head: the nodes' `aml-dist ray`
  node_manager,          ///< raylet
  object_manager,        ///< raylet
  runtime_env_agent,     ///< raylet's child
  dashboard_agent_grpc,  ///< raylet's child
  dashboard_agent_http,  ///< raylet's child
  metrics_export,        ///< raylet's child
  client_server,         ///< on the head: ray://
  dashboard,             ///< on the head
  autoscaler_metrics,    ///< on the head
  dashboard_metrics,     ///< on the head
};

/// How many there are.
inline constexpr std::uint16_t ray_ports = 12;

/// `master_port` is at most 65536 - ray_ports: settle() refuses another one.
[[nodiscard]] constexpr std::uint16_t ray_port(std::uint16_t master_port, RayPort purpose) noexcept {
  return static_cast<std::uint16_t>(master_port + static_cast<std::uint16_t>(purpose));
}

}  // namespace amldist::launch
