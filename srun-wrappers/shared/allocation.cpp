#include "shared/allocation.hpp"

#include "core/text.hpp"
#include "shared/programs.hpp"

namespace amldist::commands {

Result<Place> find_place() {
  if (!own_variable("SLURM_JOB_ID")) return Place::outside;
  auto step = own_variable("SLURM_STEP_ID");
  if (!step) step = own_variable("AMLDIST_HIDDEN_SLURM_STEP_ID");
  // Steps that Slurm itself makes (batch, interactive) have the highest ids.
  if (!step || !text::to_number(*step, 0xfffffff0U)) return Place::allocation;
  const std::string tasks = own_variable("SLURM_STEP_NUM_TASKS").value_or("1");
  if (tasks == "1") return Place::task;
  return Error{Errc::invalid_argument, text::concat({"this starts a whole step, and here it would do so in each of ",
                                                     tasks, " tasks: start it without srun in front"})};
}

}  // namespace amldist::commands
