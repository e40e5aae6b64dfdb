// The back end amldist of PyTorch (libdist/api/python/amldist/torch), and the secret that keeps strangers out of a
// world of libamldist (libdist/world/bootstrap/world_secret.cpp): the step's, one that a service provides, a file of
// the user if all ranks are on one machine, or none.
#include "aml_dist/doctor/rules.hpp"
#include "base/text/text.hpp"
#include "launch/option/settings.hpp"

namespace amldist::doctor {

FrameworkResult examine_amldist(const TaskContext& here) {
  // srun makes a secret for each step of a kind; it is not visible before the step runs.
  const bool has_secret =
      here.has(launch::variable::step_secret) || here.kind().value_or(launch::Kind::none) != launch::Kind::none;
  if (has_secret) return {.environment = "authenticated"};
  const bool is_required = here.text(launch::variable::secret) == "require";
  const Outcome outcome = is_required ? Outcome::fails : Outcome::warns;
  const std::string remedy = "srun --aml-dist=KIND, which gives each step a secret";
  if (here.has_pmix() && !here.has("MASTER_ADDR")) {
    return with({.environment = "unproven"},
                {outcome, "the ranks' secret comes by PMIx, which others may read", remedy});
  }
  if (here.nodes() == 1) return {.environment = "authenticated"};
  return with({.environment = "open"}, {outcome, "any process that reaches rank 0's port can join the world", remedy});
}

/// How the package registers itself, and how init_process_group("amldist") finds it.
FrameworkResult examine_torch_amldist(const TaskContext& here) {
  using text::concat;
  const std::string torch = here.machine().torch.value_or("");
  const std::string package = here.machine().amldist.value_or("");
  const bool is_wanted = here.text("AMLDIST_BACKEND") == "amldist";
  if (torch.empty()) return with({}, {Outcome::skip, "there is no PyTorch beside the python3 in PATH", {}});
  if (package.empty()) {
    return with({}, {is_wanted ? Outcome::fails : Outcome::skip,
                     concat({"PyTorch ", torch, " has no package amldist beside it, which registers the back end"}),
                     "pip install --no-index --find-links DIR amldist"});
  }
  const std::string versions = concat({"PyTorch ", torch, ", amldist ", package});
  if (here.machine().torch_finds_backends.value_or(false)) return {.environment = concat({versions, ", entry point"})};
  return with({.environment = concat({versions, ", import"})},
              {Outcome::warns, concat({"PyTorch ", torch, " looks for no entry points of back ends"}),
               "import amldist.torch before init_process_group()"});
}

}  // namespace amldist::doctor
