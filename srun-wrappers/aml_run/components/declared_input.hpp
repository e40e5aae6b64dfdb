// An input that a component declares, and the value that a job gives it.
#pragma once

#include <string>
#include <string_view>

#include "aml_run/yaml/yaml_tree.hpp"
#include "base/text/result.hpp"

namespace amldist::run {

/// The value as a job file would have it: a scalar, or a map with type and path. `given` nullptr: the default; null: an
/// optional input without a value. `folder`: the component's, to which its defaults are relative. Errors: no value, or
/// one that the declaration does not accept.
[[nodiscard]] Result<YamlValue> bind_input(std::string_view file, const std::string& folder, const YamlEntry& declared,
                                           const YamlValue* given);

}  // namespace amldist::run
