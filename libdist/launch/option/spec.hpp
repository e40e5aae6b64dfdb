// The grammar of the option: --aml-dist=KIND[,KEY=VALUE]...
//
//   pytorch                                    per process: Slurm starts every rank
//   pytorch,launch=per-node,nproc_per_node=4   one launcher per node
//   mpi,process_count_per_node=4               a count is an assertion about the step
//   tensorflow,worker_count=2,parameter_server_count=1
//   none                                       switches an inherited option off for one step
//   help                                       prints kinds and keys
//
// srun, sbatch and salloc parse it first and refuse a bad one. slurmstepd parses it again, as untrusted input.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/text/result.hpp"

namespace amldist::launch {

/// The job kinds of Azure ML, and jax. `none` switches the option off. ray has one task on each node: its Launch is
/// always per_node.
enum class Kind { none, pytorch, tensorflow, mpi, jax, ray };

/// Who starts the processes of a node: Slurm starts each one, or starts one launcher per node that does.
enum class Launch { per_process, per_node };

/// Whether a per-node launcher sees the Slurm variables that would make frameworks treat it as a rank.
enum class SlurmEnv { hide, keep };

/// How many processes a per-node launcher starts. `node_default`: the GPUs of the node in the step, else 1.
struct ProcessesPerNode {
  enum class Source { node_default, number, automatic, gpu, cpu };
  Source source = Source::node_default;
  std::uint32_t number = 0;

  friend bool operator==(const ProcessesPerNode&, const ProcessesPerNode&) = default;
};

/// How MASTER_ADDR is chosen: by the site's rule, as an address, as a name, or as a host that the user gave.
struct MasterAddress {
  enum class Form { site_default, ip, name, host };
  Form form = Form::site_default;
  std::string host;

  friend bool operator==(const MasterAddress&, const MasterAddress&) = default;
};

/// How to treat RDMA before the job starts: fail without it, use sockets without it, or do not check.
enum class RdmaPolicy { require, prefer, off };

/// Which nodes write to each other over RDMA before a step's tasks start: none; each to the next; each to those 1, 2,
/// 4, ... further, in pairs; every one to every other.
enum class RdmaPairs { off, ring, log, all };

/// What to do with a step that makes no progress for hang= seconds: report it, or report it and end the step.
enum class HangAction { report, end };

/// When a step is asked to stop: so long before its time limit, and by which signal besides the stop file.
struct StopWish {
  std::uint32_t seconds = 0;
  int signal = 0;  ///< 0: by the file alone

  friend bool operator==(const StopWish&, const StopWish&) = default;
};

/// Counts of the step that the user asserts. Unset: not asserted.
struct CountAssertions {
  std::optional<std::uint32_t> nodes;               ///< node_count
  std::optional<std::uint32_t> processes;           ///< process_count
  std::optional<std::uint32_t> processes_per_node;  ///< process_count_per_node, process_count_per_instance
  std::string_view processes_per_node_key = {};     ///< which of the two the user wrote
  std::optional<std::uint32_t> workers;             ///< worker_count
  std::optional<std::uint32_t> parameter_servers;   ///< parameter_server_count
  std::optional<std::uint32_t> chiefs;              ///< chief_count, 0 or 1
  std::optional<std::uint32_t> evaluators;          ///< evaluator_count, 0 or 1

  friend bool operator==(const CountAssertions&, const CountAssertions&) = default;
};

/// A parsed option: what the user asked for. It says nothing about the step.
struct Spec {
  Kind kind = Kind::none;
  Launch launch = Launch::per_process;
  SlurmEnv slurm_env = SlurmEnv::hide;
  ProcessesPerNode nproc_per_node;
  std::string backend;  ///< lower case; empty: the program's choice
  MasterAddress master_addr;
  std::optional<std::uint16_t> master_port;
  std::optional<RdmaPolicy> rdma;
  std::optional<RdmaPairs> rdma_pairs;
  std::optional<RdmaPolicy> health;   ///< of GPUs and hosts
  std::optional<bool> trace;          ///< trace, trace=off; not given: the site decides
  std::optional<std::uint32_t> hang;  ///< seconds; implies trace
  std::optional<HangAction> hang_action;
  std::optional<std::uint32_t> hang_busy;  ///< how many times later a rank that computes counts as hung
  std::optional<StopWish> stop;
  bool along_topology = false;  ///< order=topology: an assertion about the order of the hosts
  bool verbose = false;
  CountAssertions counts;

  friend bool operator==(const Spec&, const Spec&) = default;
};

/// Largest value of hang= and stop=, in seconds: a week.
inline constexpr std::uint32_t longest_hang = 604'800;

/// Values of hang_busy=.
inline constexpr std::uint32_t default_hang_busy = 5;
inline constexpr std::uint32_t largest_hang_busy = 1000;

/// Longest option text that is accepted, in bytes.
inline constexpr std::size_t longest_option = 4096;

/// Parses the text after "--aml-dist=". The error names the wrong piece and suggests the closest valid one.
/// `help` is not a kind: callers ask is_help() first.
[[nodiscard]] Result<Spec> parse_spec(std::string_view text);

/// Whether the option asks for the help text (`help`, alone or as the first word).
[[nodiscard]] bool is_help(std::string_view text) noexcept;

/// Kinds and keys, a few dozen lines for a terminal, ending in a newline.
[[nodiscard]] std::string option_help();

/// "pytorch", "tensorflow", ...
[[nodiscard]] std::string_view to_string(Kind kind) noexcept;
[[nodiscard]] std::string_view to_string(Launch launch) noexcept;
[[nodiscard]] std::string_view to_string(RdmaPolicy policy) noexcept;
[[nodiscard]] std::optional<RdmaPolicy> policy_from_name(std::string_view name) noexcept;
[[nodiscard]] std::string_view to_string(RdmaPairs pairs) noexcept;
[[nodiscard]] std::optional<RdmaPairs> rdma_pairs_from_name(std::string_view name) noexcept;

/// A kind by its name; `none` included.
[[nodiscard]] std::optional<Kind> kind_from_name(std::string_view name) noexcept;

/// Whether `host` is an IPv4 address or a name made of letters, digits, '-', '_' and '.' that does not begin with '-'
/// and has at most 253 characters. Digits and dots alone are an address or nothing. IPv6 is refused: scripts split
/// AZ_BATCH_MASTER_NODE at ':'.
[[nodiscard]] bool is_host(std::string_view host) noexcept;

}  // namespace amldist::launch
