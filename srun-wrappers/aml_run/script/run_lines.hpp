// The parts of a job's script that depend on its place: alone, in a pipeline's run, or as a trial of a sweep.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "aml_run/plan.hpp"

namespace amldist::run {

/// The line that does something when the script ends, beside what the job's place asks for then.
[[nodiscard]] std::string at_end(const Plan& plan, std::string_view action);

/// First of all: whether the job may start, what its end does to the run, a trial's folder.
[[nodiscard]] std::vector<std::string> beginning_lines(const Plan& plan);

/// Before the job's own variables: a trial's parameters, and where metrics go.
[[nodiscard]] std::vector<std::string> value_lines(const Plan& plan);

/// Before the step: what may end a trial early.
[[nodiscard]] std::vector<std::string> watch_lines(const Plan& plan);

/// The path of the record of the job's end, as one word of bash; empty: the end is not recorded.
[[nodiscard]] std::string record_path(const Plan& plan);

/// The folder of outputs without a path of their own, as bash writes it in double quotes.
[[nodiscard]] std::string_view output_parent(const Plan& plan);

/// The script of the small job after a sweep in a pipeline: it puts the best trial's outputs where other jobs look. It
/// has those of the trials' options without which a site may refuse a job: partition, account and the like.
[[nodiscard]] std::string finishing_script(const PipelineJobPlace& place, const std::string& sweep_folder,
                                           const commands::SlurmOptions& trials);

}  // namespace amldist::run
