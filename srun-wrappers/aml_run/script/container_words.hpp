// The words with which pyxis, Apptainer or podman runs a job's image.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "aml_run/plan.hpp"

namespace amldist::run {

/// An image's name as pyxis reads it: "nvcr.io/nvidia/pytorch:24.01" is "nvcr.io#nvidia/pytorch:24.01".
[[nodiscard]] std::string pyxis_name(std::string_view image);

/// As Apptainer reads it: with docker:// in front, unless it is a file or has a scheme.
[[nodiscard]] std::string apptainer_name(std::string_view image);

/// The words between srun's options and the program, as text of bash with a blank at its end. `variables` are the
/// job's, and win over the image's.
[[nodiscard]] std::string container_words(const Container& container, const std::vector<Variable>& variables);

}  // namespace amldist::run
