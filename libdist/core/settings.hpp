// The environment variables that configure libamldist and the tools: one table. They are parsed once, when a world is
// created, and passed on as a value. docs/environment-reference.md shows the table; tests/style/test_settings.py
// compares the two.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/environment.hpp"
#include "core/instruction_set.hpp"
#include "core/node_domains.hpp"
#include "core/port_ranges.hpp"
#include "core/result.hpp"
#include "core/spec.hpp"

namespace amldist {

/// Names of the variables.
namespace variable {

inline constexpr std::string_view bootstrap = "AMLDIST_BOOTSTRAP";
inline constexpr std::string_view instance_types = "AMLDIST_INSTANCE_TYPES";
inline constexpr std::string_view instruction_set = "AMLDIST_ISA";
inline constexpr std::string_view verbs_library = "AMLDIST_LIBIBVERBS";
inline constexpr std::string_view integrity = "AMLDIST_INTEGRITY";
inline constexpr std::string_view mpi_library = "AMLDIST_MPI";
inline constexpr std::string_view nccl_library = "AMLDIST_NCCL";
inline constexpr std::string_view nvml_library = "AMLDIST_NVML";
inline constexpr std::string_view cuda_library = "AMLDIST_CUDA";
inline constexpr std::string_view node_domains = "AMLDIST_NODE_DOMAINS";
inline constexpr std::string_view node_name = "AMLDIST_NODE_NAME";
inline constexpr std::string_view port_range = "AMLDIST_PORT_RANGE";
inline constexpr std::string_view rdma = "AMLDIST_RDMA";
inline constexpr std::string_view rdma_sku = "AMLDIST_RDMA_SKU";
inline constexpr std::string_view single_copy = "AMLDIST_SINGLE_COPY";
inline constexpr std::string_view secret = "AMLDIST_SECRET";
inline constexpr std::string_view step_secret = "AMLDIST_STEP_SECRET";
inline constexpr std::string_view timeout = "AMLDIST_TIMEOUT_MS";
inline constexpr std::string_view nccl_profiler = "AMLDIST_NCCL_PROFILER";
inline constexpr std::string_view trace = "AMLDIST_TRACE";
inline constexpr std::string_view trace_folder = "AMLDIST_TRACE_DIR";
inline constexpr std::string_view transport = "AMLDIST_TRANSPORT";
inline constexpr std::string_view mpi_yields = "OMPI_MCA_mpi_yield_when_idle";
inline constexpr std::string_view slurm_step = "SLURM_STEP_ID";

}  // namespace variable

/// One row of the table, in Markdown.
struct SettingDescription {
  std::string_view name;
  std::string_view reader;         ///< the call or command that reads it
  std::string_view values;         ///< valid values, with the unit
  std::string_view default_value;  ///< default, if unset or empty
  std::string_view meaning;
};

/// The table, sorted by name.
[[nodiscard]] std::span<const SettingDescription> setting_descriptions() noexcept;

/// How the ranks find rank 0. `automatic`: over MPI if the program has initialised it, else the first of the others
/// that is available.
enum class Bootstrap : std::uint8_t { automatic, tcp, pmix, slurm, mpi };

/// What carries host buffers between nodes. `automatic`: MPI if the program has initialised it on every rank, else TCP.
enum class NodeTransport : std::uint8_t { automatic, tcp, mpi };

/// What stands behind each message between nodes: nothing, a checksum, or an authentication code.
enum class Integrity : std::uint8_t { off, crc, mac };
/// "off", "crc", "mac".
[[nodiscard]] std::string_view to_string(Integrity integrity) noexcept;

/// What a world without a secret, or with one that others may have read, comes to. `require`: it is refused.
enum class SecretPolicy : std::uint8_t { prefer, require };

/// Long messages of a node in a single copy: never, where that is faster, or also reductions of ranks that are near.
enum class SingleCopyPolicy : std::uint8_t { off, on, always };

/// The settings of a world.
struct Settings {
  Bootstrap bootstrap = Bootstrap::automatic;
  NodeTransport transport = NodeTransport::automatic;
  std::chrono::milliseconds timeout{300'000};
  InstructionSet instruction_set = InstructionSet::avx512;  ///< the highest that reductions may use
  RdmaPolicy rdma = RdmaPolicy::off;
  SecretPolicy secret = SecretPolicy::prefer;
  Integrity integrity = Integrity::off;
  SingleCopyPolicy single_copy = SingleCopyPolicy::on;
  NodeDomains node_domains;    ///< which ranks of a node are near each other
  PortRanges ports;            ///< on which the ranks listen; empty: any
  std::string rdma_sku;        ///< empty: none is named
  std::string node_name;       ///< empty: the host name
  std::string mpi_library;     ///< empty: libamldist_mpi.so beside this library
  std::string nccl_library;    ///< empty: the one that the process has loaded, else libnccl.so.2
  std::string trace_folder;    ///< "off", "none" or a path; empty: the user's folder in /dev/shm
  bool mpi_yields = false;     ///< MPI yields the processor when it is idle
  bool is_under_srun = false;  ///< this process was started by srun

  /// Errors: invalid_argument, with the variable, its value and the valid values.
  [[nodiscard]] static Result<Settings> read(const EnvironmentReader& environment);
};

}  // namespace amldist
