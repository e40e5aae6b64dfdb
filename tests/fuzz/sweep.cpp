// A sweep's file: the YAML, its search space, limits and policy, and the trials that are chosen.
#include "aml_run/sweep/sweep_file.hpp"

#include "aml_run/yaml/yaml_reading.hpp"
#include "fuzz.hpp"

namespace amldist::fuzz::sweep {

const std::string_view separator = "\n";

void try_input(std::string_view input) {
  auto tree = run::parse_yaml("sweep.yml", input);
  if (!tree) {
    require(!tree.error().message.empty(), "a refusal says why");
    return;
  }
  run::read_numbers(*tree);
  const auto sweep = run::read_sweep("sweep.yml", "/nowhere", *tree);
  if (!sweep) {
    require(!sweep.error().message.empty() && sweep.error().message.size() < 8192, "a refusal says why");
    return;
  }
  require(!sweep->trials.empty() && sweep->trials.size() <= run::most_trials, "there are trials, and not too many");
  require(!sweep->space.empty() && !sweep->metric.empty(), "there is a space, and something to optimise");
  for (const run::Trial& trial : sweep->trials) {
    require(trial.size() == sweep->space.size(), "a trial has a value for each parameter");
  }
  require(sweep->policy.interval > 0, "a trial is judged at every report, or at every Nth");
  const auto again = run::read_sweep("sweep.yml", "/nowhere", *tree);
  if (tree->find("sampling_algorithm") != nullptr && tree->find("sampling_algorithm")->find("seed") != nullptr) {
    require(static_cast<bool>(again) && again->trials == sweep->trials, "a seed gives the same trials");
  }
}

}  // namespace amldist::fuzz::sweep
