// A conda file as lines of the batch script that make its environment once and put it in front of PATH.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "aml_run/provision_policy.hpp"
#include "aml_run/yaml_tree.hpp"
#include "base/text/result.hpp"

namespace amldist::run {

/// The text of `environment.conda_file`: a file from `folder`, or what stands there itself. Errors: it cannot be read.
[[nodiscard]] Result<std::string> conda_text(const std::string& file, const std::string& folder,
                                             const YamlValue& value);

/// The lines. An environment is the user's own, is named by its file's content, and is made under a lock.
/// Errors: the text is no YAML; uv is to make it, and it has packages that pip does not install.
[[nodiscard]] Result<std::vector<std::string>> conda_lines(const CondaPolicy& policy, std::string_view text);

}  // namespace amldist::run
