// The values of a sweep's parameters in the script of its trials: each is in a variable of its own.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "aml_run/expressions.hpp"
#include "aml_run/plan.hpp"
#include "aml_run/sweep/sweep_file.hpp"

namespace amldist::run {

/// The values of ${{search_space.x}}, and of ${{inputs.x}} of a component.
[[nodiscard]] std::vector<std::pair<std::string, Replacement>> parameter_expressions(const Sweep& sweep);

/// The variables with their values.
[[nodiscard]] std::vector<SweepPlace::Parameter> parameters_of(const Sweep& sweep);

}  // namespace amldist::run
