// How many nodes and tasks a job has, as far as its options say.
#pragma once

#include <optional>

#include "base/text/result.hpp"
#include "launch/frameworks/launchers.hpp"
#include "launch/option/spec.hpp"
#include "shared/slurm_options.hpp"

namespace amldist::run {

/// Fills in what is missing: the tasks that TensorFlow's roles add up to, else one task on one node.
void complete_shape(const launch::Spec& spec, commands::SlurmOptions& job);

/// The step's shape, if the options determine it.
[[nodiscard]] std::optional<launch::StepShape> shape_of(const commands::SlurmOptions& job);

/// Checks the counts of --kind against the options, before anything is submitted: srun would find the same, but only
/// after the job has waited and started. What the options leave open is not checked. Errors: mismatch, with both
/// numbers.
[[nodiscard]] Result<void> check_shape(const launch::Spec& spec, const commands::SlurmOptions& job);

}  // namespace amldist::run
