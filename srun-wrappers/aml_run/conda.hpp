// Reads a conda file.
#pragma once

#include <string>

#include "aml_run/plan.hpp"
#include "aml_run/yaml/yaml_tree.hpp"
#include "base/text/result.hpp"

namespace amldist::run {

/// The text of `environment.conda_file`: a file from `folder`, or the inline text. Errors: it cannot be read.
[[nodiscard]] Result<std::string> conda_text(const std::string& file, const std::string& folder,
                                             const YamlValue& value);

/// The environment that the site makes of it. Errors: the text is not YAML; the site uses uv, and the file has packages
/// that pip does not install.
[[nodiscard]] Result<CondaEnvironment> conda_environment(const CondaPolicy& policy, std::string text);

}  // namespace amldist::run
