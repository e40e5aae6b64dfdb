// The doctor's rules: one pure function for each framework, and those that several frameworks share.
//
// A rule follows the framework's own source; each file names the version that it was read in. To add a framework: write
// <name>.cpp with one function of this signature and name it in the table of examination.cpp.
#pragma once

#include <optional>
#include <string>

#include "aml_dist/doctor/finding.hpp"
#include "aml_dist/doctor/surroundings.hpp"

namespace amldist::doctor {

/// What becomes of a process that is started in these surroundings. Framework and launcher are filled in by the caller.
using Rule = Finding (*)(const Surroundings& here);

Finding examine_torch(const Surroundings& here);
Finding examine_lightning(const Surroundings& here);
Finding examine_accelerate(const Surroundings& here);
Finding examine_transformers(const Surroundings& here);
Finding examine_deepspeed(const Surroundings& here);
Finding examine_ignite(const Surroundings& here);
Finding examine_horovod(const Surroundings& here);
Finding examine_mpi(const Surroundings& here);
Finding examine_mpi4py(const Surroundings& here);
Finding examine_tensorflow(const Surroundings& here);
Finding examine_keras(const Surroundings& here);
Finding examine_jax(const Surroundings& here);
Finding examine_gloo(const Surroundings& here);
Finding examine_nccl(const Surroundings& here);
Finding examine_gpus(const Surroundings& here);
Finding examine_locked_memory(const Surroundings& here);

/// A launcher: what it would make of its own start, and the surroundings of the first process that it starts here.
struct Launch {
  Finding itself;
  Surroundings child;
};
Launch start_torchrun(const Surroundings& here);
Launch start_torch_launch(const Surroundings& here);
Launch start_accelerate_launch(const Surroundings& here);

/// What keeps processes with RANK, WORLD_SIZE and MASTER_* from meeting; nullopt: nothing that is known.
[[nodiscard]] std::optional<Trouble> meeting_trouble(const Surroundings& here);
/// What keeps Gloo from connecting several nodes.
[[nodiscard]] std::optional<Trouble> gloo_trouble(const Surroundings& here);
/// A framework that reads `host` out of the variable `list` and takes it for the host of rank 0: nullopt where it is.
[[nodiscard]] std::optional<Trouble> first_host_trouble(const Surroundings& here, std::string_view framework,
                                                        std::string_view list, const std::string& host,
                                                        std::string_view remedy);
/// The port that Lightning and Ignite make of the job's number.
[[nodiscard]] std::string port_of_job(const Surroundings& here);
/// What Open MPI does in MPI_Init: ends the process, or leaves it alone.
[[nodiscard]] std::optional<Trouble> mpi_trouble(const Surroundings& here);

}  // namespace amldist::doctor
