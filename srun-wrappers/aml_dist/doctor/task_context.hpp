// What the doctor knows about a task: its environment, and the machine's facts if the task really runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/environment.hpp"
#include "launch/option/spec.hpp"

namespace amldist::doctor {

/// Facts that are not in the environment. Absent: not known, as for a step that is only imagined.
struct Machine {
  std::optional<bool> own_name_is_loopback = std::nullopt;  ///< in /etc/hosts
  std::optional<std::vector<std::string>> interfaces = std::nullopt;
  std::optional<std::uint64_t> locked_memory = std::nullopt;  ///< limit in bytes; the largest number: unlimited
  std::optional<bool> has_rdma = std::nullopt;
  std::optional<std::uint32_t> gpus = std::nullopt;    ///< device files
  std::string misplaced = {};                          ///< what of this task does not belong together; empty: nothing
  std::optional<bool> has_build_tools = std::nullopt;  ///< ninja and a C++ compiler on PATH
  /// Of a step that is only imagined. A task sees lists of hosts alone, and may not know it.
  std::optional<std::string> host_of_rank_zero = std::nullopt;
  std::string python_version = {};  ///< "3.11"; empty: not known
  /// Version of an installed Python distribution; empty: not there. Absent: nobody has looked.
  std::optional<std::string> mpi4py = std::nullopt;
  std::optional<std::string> torch = std::nullopt;
  std::optional<std::string> amldist = std::nullopt;
  std::optional<bool> torch_finds_backends = std::nullopt;  ///< by name, through entry points
  std::optional<std::string> keras = std::nullopt;
  std::optional<std::string> tf_keras = std::nullopt;
};

/// The process that starts the ranks, as the environment shows it.
enum class Start {
  per_process,  ///< srun starts every process
  per_node,     ///< srun starts one launcher on each node
  torchrun,     ///< torchrun or torch.distributed.launch has started this process
  unknown,      ///< a step without aml-dist, or not a step
};

/// A task, from its environment and its machine. Pure.
class TaskContext {
 public:
  TaskContext(EnvironmentReader environment, Machine machine);

  [[nodiscard]] const Machine& machine() const noexcept { return machine_; }
  [[nodiscard]] const EnvironmentReader& environment() const noexcept { return environment_; }
  [[nodiscard]] Start start() const noexcept { return start_; }
  [[nodiscard]] std::optional<launch::Kind> kind() const noexcept {
    return kind_;
  }  ///< of this very step, from the stamp

  [[nodiscard]] bool has(std::string_view name) const { return environment_(name).has_value(); }
  /// Empty if not set.
  [[nodiscard]] std::string text(std::string_view name) const { return environment_(name).value_or(std::string()); }
  /// nullopt if not set or not a number.
  [[nodiscard]] std::optional<std::uint64_t> number(std::string_view name) const;
  [[nodiscard]] bool is_true(std::string_view name) const;  ///< "1", "true", "yes", "on"

  [[nodiscard]] bool in_step() const { return has("SLURM_JOB_ID") && has("SLURM_PROCID"); }
  /// Tasks of the step, of this node, and nodes; 1 if not known.
  [[nodiscard]] std::uint64_t tasks() const;
  [[nodiscard]] std::uint64_t tasks_here() const;
  [[nodiscard]] std::uint64_t nodes() const;
  [[nodiscard]] bool is_uneven() const;  ///< nodes with different numbers of tasks

  /// Open MPI considers a process started by srun when both are set.
  [[nodiscard]] bool open_mpi_sees_slurm() const { return has("SLURM_STEP_ID") && has("SLURM_NODELIST"); }
  [[nodiscard]] bool has_pmix() const { return has("PMIX_RANK") && has("PMIX_NAMESPACE"); }

  /// GPUs that the process sees; if the environment does not say, those of the machine.
  [[nodiscard]] std::uint32_t gpus() const;
  [[nodiscard]] std::string master() const;  ///< "MASTER_ADDR:MASTER_PORT" as far as set

  /// The same with some variables set or, without a value, removed.
  [[nodiscard]] TaskContext changed(std::vector<EnvironmentPatch::Change> changes) const;

 private:
  EnvironmentReader environment_;
  Machine machine_;
  Start start_;
  std::optional<launch::Kind> kind_;
};

[[nodiscard]] bool is_loopback(std::string_view host);

}  // namespace amldist::doctor
