// Programs of Open MPI (4.1 and 5), mpi4py and Horovod (0.28, built with MPI): who they are comes from PMIx, which srun
// provides with --mpi=pmix.
#include <array>

#include "aml_dist/doctor/rules.hpp"
#include "core/text.hpp"

namespace amldist::doctor {
namespace {

using text::concat;

Finding examine_pmix(const Surroundings& here) {
  Finding finding{.environment = here.has_pmix() ? "PMIx" : "none"};
  if (auto trouble = mpi_trouble(here)) return with(finding, std::move(*trouble));
  finding.rank = here.number("PMIX_RANK").value_or(0);
  finding.size = here.has_pmix() ? here.tasks() : 1;
  return finding;
}

/// MPI itself does not read these; scripts do.
std::optional<Trouble> differing_name(const Surroundings& here, const Finding& finding) {
  for (const std::string_view name : {"RANK", "OMPI_COMM_WORLD_RANK"}) {
    const auto number = here.number(name);
    if (!number || number == finding.rank) continue;
    return Trouble{
        Verdict::warns,
        concat({"MPI's rank is ", std::to_string(*finding.rank), " but ", name, " is ", std::to_string(*number)}),
        concat({"leave ", name, " to --aml-dist"})};
  }
  return std::nullopt;
}

/// Horovod's run_task() wants both of a pair or none.
std::optional<Trouble> half_a_pair(const Surroundings& here) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 3> pairs = {
      {{"HOROVOD_RANK", "HOROVOD_SIZE"}, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"PMI_RANK", "PMI_SIZE"}}};
  for (const auto& [rank, size] : pairs) {
    if (here.has(rank) && here.has(size)) return std::nullopt;
    if (!here.has(rank) && !here.has(size)) continue;
    return Trouble{
        Verdict::warns,
        concat({"horovod.runner raises RuntimeError: only one of ", rank, " and ", size, " found in environment"}),
        concat({"unset ", here.has(rank) ? rank : size, ", or use --aml-dist=mpi"})};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Trouble> mpi_trouble(const Surroundings& here) {
  if (here.has_pmix()) return std::nullopt;
  if (here.open_mpi_sees_slurm()) {
    return Trouble{Verdict::fails, "Open MPI ends the process in MPI_Init: direct launched using \"srun\" without PMIx",
                   "srun --mpi=pmix"};
  }
  if (here.in_step() && here.tasks() > 1) {
    return Trouble{Verdict::alone, concat({"each of ", text::count(here.tasks(), "task"), " is an MPI job of size 1"}),
                   "srun --mpi=pmix"};
  }
  return std::nullopt;
}

Finding examine_mpi(const Surroundings& here) {
  Finding finding = examine_pmix(here);
  if (finding.verdict != Verdict::fine) return finding;
  if (auto trouble = differing_name(here, finding)) return with(finding, std::move(*trouble));
  return finding;
}

Finding examine_mpi4py(const Surroundings& here) { return examine_mpi(here); }

Finding examine_horovod(const Surroundings& here) {
  Finding finding = examine_mpi(here);
  if (finding.verdict != Verdict::fine) return finding;
  if (auto trouble = half_a_pair(here)) return with(finding, std::move(*trouble));
  return finding;
}

}  // namespace amldist::doctor
