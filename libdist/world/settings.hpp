// The variables that configure how the processes of a step become a world. They are read once, and passed on as a
// value.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/text/port_ranges.hpp"
#include "base/text/setting.hpp"
#include "launch/option/settings.hpp"

namespace amldist::world {
namespace variable {

inline constexpr std::string_view bootstrap = "AMLDIST_BOOTSTRAP";
inline constexpr std::string_view integrity = "AMLDIST_INTEGRITY";
inline constexpr std::string_view mpi_library = "AMLDIST_MPI";
inline constexpr std::string_view node_name = "AMLDIST_NODE_NAME";
inline constexpr std::string_view port_range = "AMLDIST_PORT_RANGE";
inline constexpr std::string_view tcp_congestion = "AMLDIST_TCP_CONGESTION";
inline constexpr std::string_view timeout = "AMLDIST_TIMEOUT_MS";
inline constexpr std::string_view transport = "AMLDIST_TRANSPORT";
inline constexpr std::string_view mpi_yields = "OMPI_MCA_mpi_yield_when_idle";
inline constexpr std::string_view slurm_step = "SLURM_STEP_ID";

}  // namespace variable

/// The table, sorted by name.
[[nodiscard]] std::span<const SettingDescription> setting_descriptions() noexcept;

/// How the ranks find rank 0. `automatic`: over MPI if the program has initialised it, else the first of the others
/// that is available.
enum class Bootstrap : std::uint8_t { automatic, tcp, pmix, slurm, mpi };

/// What carries host buffers between nodes. `automatic`: MPI if the program has initialised it on every rank, else TCP.
enum class Carrier : std::uint8_t { automatic, tcp, mpi };

/// What is appended to each message between nodes: nothing, a checksum, or an authentication code.
enum class Integrity : std::uint8_t { off, crc, mac };
/// "off", "crc", "mac".
[[nodiscard]] std::string_view to_string(Integrity integrity) noexcept;

/// The settings of a world.
struct Settings {
  Bootstrap bootstrap = Bootstrap::automatic;
  Carrier transport = Carrier::automatic;
  std::chrono::milliseconds timeout{300'000};
  launch::SecretPolicy secret = launch::SecretPolicy::prefer;
  Integrity integrity = Integrity::off;
  std::string tcp_congestion;  ///< congestion_control::automatic, of_system, or an algorithm's name
  PortRanges ports;            ///< on which the ranks listen; empty: any
  std::string node_name;       ///< empty: the host name
  std::string mpi_library;     ///< empty: libamldist_mpi.so beside this library
  bool mpi_yields = false;     ///< MPI yields the processor when it is idle
  bool is_under_srun = false;  ///< this process was started by srun

  /// Errors: invalid_argument, with the variable, its value and the valid values.
  [[nodiscard]] static Result<Settings> read(const EnvironmentReader& environment);
};

}  // namespace amldist::world
