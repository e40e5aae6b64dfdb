// The output of the doctor: JSON for programs, a table and one sentence for each reason for people.
#pragma once

#include <span>
#include <string>

#include "aml_dist/doctor/framework_result.hpp"

namespace amldist::doctor {

/// An array with framework, launcher, environment, rank, size, master, verdict, reason and remedy of each row. Numbers
/// that are not known are null, texts empty.
[[nodiscard]] std::string to_json(std::span<const FrameworkResult> results);

/// The table of what is not skipped, and below it the reasons; rows with the same reason share it.
[[nodiscard]] std::string to_text(std::span<const FrameworkResult> results);

}  // namespace amldist::doctor
