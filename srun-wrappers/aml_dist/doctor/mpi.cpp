// Programs of Open MPI (4.1 and 5), mpi4py and Horovod (0.28, built with MPI): they get their ranks from PMIx, which
// srun provides with --mpi=pmix.
#include <array>

#include "aml_dist/doctor/rules.hpp"
#include "base/text/text.hpp"

namespace amldist::doctor {
namespace {

using text::concat;

FrameworkResult examine_pmix(const TaskContext& here) {
  FrameworkResult result{.environment = here.has_pmix() ? "PMIx" : "none"};
  if (auto problem = mpi_problem(here)) return with(result, std::move(*problem));
  result.rank = here.number("PMIX_RANK").value_or(0);
  result.size = here.has_pmix() ? here.tasks() : 1;
  return result;
}

/// MPI itself does not read these; scripts do.
std::optional<Problem> differing_name(const TaskContext& here, const FrameworkResult& result) {
  for (const std::string_view name : {"RANK", "OMPI_COMM_WORLD_RANK"}) {
    const auto number = here.number(name);
    if (!number || number == result.rank) continue;
    return Problem{
        Outcome::warns,
        concat({"MPI's rank is ", std::to_string(*result.rank), " but ", name, " is ", std::to_string(*number)}),
        concat({"leave ", name, " to --aml-dist"})};
  }
  return std::nullopt;
}

/// Horovod's run_task() requires both of a pair or neither.
std::optional<Problem> half_a_pair(const TaskContext& here) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> pairs = {
      {{"HOROVOD_RANK", "HOROVOD_SIZE"}, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"PMI_RANK", "PMI_SIZE"}}};
  for (const auto& [rank, size] : pairs) {
    if (here.has(rank) && here.has(size)) return std::nullopt;
    if (!here.has(rank) && !here.has(size)) continue;
    return Problem{
        Outcome::warns,
        concat({"horovod.runner raises RuntimeError: only one of ", rank, " and ", size, " found in environment"}),
        concat({"unset ", here.has(rank) ? rank : size, ", or use --aml-dist=mpi"})};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Problem> mpi_problem(const TaskContext& here) {
  if (here.has_pmix()) return std::nullopt;
  if (here.open_mpi_sees_slurm()) {
    return Problem{Outcome::fails, "Open MPI ends the process in MPI_Init: direct launched using \"srun\" without PMIx",
                   "srun --mpi=pmix"};
  }
  if (here.in_step() && here.tasks() > 1) {
    return Problem{Outcome::alone, concat({"each of ", text::count(here.tasks(), "task"), " is an MPI job of size 1"}),
                   "srun --mpi=pmix"};
  }
  return std::nullopt;
}

FrameworkResult examine_mpi(const TaskContext& here) {
  FrameworkResult result = examine_pmix(here);
  if (result.outcome != Outcome::fine) return result;
  if (auto problem = differing_name(here, result)) return with(result, std::move(*problem));
  return result;
}

FrameworkResult examine_mpi4py(const TaskContext& here) { return examine_mpi(here); }

FrameworkResult examine_horovod(const TaskContext& here) {
  FrameworkResult result = examine_mpi(here);
  if (result.outcome != Outcome::fine) return result;
  if (auto problem = half_a_pair(here)) return with(result, std::move(*problem));
  return result;
}

}  // namespace amldist::doctor
