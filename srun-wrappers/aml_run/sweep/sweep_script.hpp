// The batch script of a sweep's trials: one array, each task of which reads its parameters by its number.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "aml_run/expressions.hpp"
#include "aml_run/plan.hpp"
#include "aml_run/sweep/sweep_file.hpp"

namespace amldist::run {

/// What stands for ${{search_space.x}}, and for ${{inputs.x}} of a component: variables of the script.
[[nodiscard]] std::vector<std::pair<std::string, Replacement>> parameter_expressions(const Sweep& sweep);

/// Gives the trial's plan its folder, its parameters, the places for its metric, and what watches over it.
void place_in_sweep(const std::string& run_folder, const std::string& sweep_folder, const Sweep& sweep, Plan& plan);

/// The script of the small job behind a sweep in a pipeline: it puts the best trial's outputs where other jobs look. Of
/// the trials' options it has those without which a site may refuse a job: partition, account and their like.
[[nodiscard]] std::string finishing_script(const std::string& run_folder, const std::string& sweep_folder,
                                           const std::string& job_name, const commands::SlurmOptions& trials,
                                           bool continue_on_failure);

}  // namespace amldist::run
