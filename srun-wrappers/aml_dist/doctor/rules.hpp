// The doctor's rules: one pure function for each framework, and those that several frameworks share.
//
// A rule follows the framework's own source; each file names the version that it was read in. To add a framework: write
// <name>.cpp with one function of this signature and name it in the table of examination.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "aml_dist/doctor/framework_result.hpp"
#include "aml_dist/doctor/task_context.hpp"

namespace amldist::doctor {

/// Predicts a process that is started in this context. Framework and launcher are filled in by the caller.
using Rule = FrameworkResult (*)(const TaskContext& here);

FrameworkResult examine_torch(const TaskContext& here);
FrameworkResult examine_lightning(const TaskContext& here);
FrameworkResult examine_accelerate(const TaskContext& here);
FrameworkResult examine_transformers(const TaskContext& here);
FrameworkResult examine_deepspeed(const TaskContext& here);
FrameworkResult examine_ignite(const TaskContext& here);
FrameworkResult examine_horovod(const TaskContext& here);
FrameworkResult examine_mpi(const TaskContext& here);
FrameworkResult examine_mpi4py(const TaskContext& here);
FrameworkResult examine_tensorflow(const TaskContext& here);
FrameworkResult examine_keras(const TaskContext& here);
FrameworkResult examine_jax(const TaskContext& here);
FrameworkResult examine_ray(const TaskContext& here);
FrameworkResult examine_gloo(const TaskContext& here);
FrameworkResult examine_nccl(const TaskContext& here);
FrameworkResult examine_amldist(const TaskContext& here);
FrameworkResult examine_torch_amldist(const TaskContext& here);
FrameworkResult examine_gpus(const TaskContext& here);
FrameworkResult examine_locked_memory(const TaskContext& here);

/// A launcher: predicts its own start, and the context of the first process that it starts here.
struct Launch {
  FrameworkResult itself;
  TaskContext child;
};
Launch start_torchrun(const TaskContext& here);
Launch start_torch_launch(const TaskContext& here);
Launch start_accelerate_launch(const TaskContext& here);
/// The step's program: a launcher must not make several worlds.
FrameworkResult examine_command(const TaskContext& here, const std::vector<std::string>& words);

/// Why processes with RANK, WORLD_SIZE and MASTER_* cannot meet; nullopt if no reason is known.
[[nodiscard]] std::optional<Problem> meeting_problem(const TaskContext& here);
/// Why Gloo cannot connect several nodes.
[[nodiscard]] std::optional<Problem> gloo_problem(const TaskContext& here);
/// For a framework that reads `host` out of the variable `list` and uses it as the host of rank 0: nullopt if it is.
[[nodiscard]] std::optional<Problem> first_host_problem(const TaskContext& here, std::string_view framework,
                                                        std::string_view list, const std::string& host,
                                                        std::string_view remedy);
/// Why nobody listens at this master, a node of the step that is not rank 0's; nullopt as far as this task knows both.
[[nodiscard]] std::optional<Problem> foreign_master(const TaskContext& here, const std::string& address);
/// The port that Lightning and Ignite derive from the job's number.
[[nodiscard]] std::string port_of_job(const TaskContext& here);
/// Whether Open MPI ends the process in MPI_Init.
[[nodiscard]] std::optional<Problem> mpi_problem(const TaskContext& here);

}  // namespace amldist::doctor
