// What keeps strangers out of a world of libamldist (libdist/collective/bootstrap/world_secret.cpp): the step's secret,
// one that a service brings, a file of the user's where all ranks are on one machine, or nothing.
#include "aml_dist/doctor/rules.hpp"
#include "core/settings.hpp"

namespace amldist::doctor {

FrameworkResult examine_amldist(const TaskContext& here) {
  // srun makes a secret for each step of a kind, which nobody sees before it runs.
  const bool has_secret = here.has(variable::step_secret) || here.kind().value_or(Kind::none) != Kind::none;
  if (has_secret) return {.environment = "authenticated"};
  const bool is_required = here.text(variable::secret) == "require";
  const Outcome outcome = is_required ? Outcome::fails : Outcome::warns;
  const std::string remedy = "srun --aml-dist=KIND, which gives each step a secret";
  if (here.has_pmix() && !here.has("MASTER_ADDR")) {
    return with({.environment = "unproven"},
                {outcome, "the ranks' secret comes by PMIx, which others may read", remedy});
  }
  if (here.nodes() == 1) return {.environment = "authenticated"};
  return with({.environment = "open"}, {outcome, "whoever reaches rank 0's port can join the world", remedy});
}

}  // namespace amldist::doctor
