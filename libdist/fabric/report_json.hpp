// A report as JSON and as lines, without a library: the C ABI and the plugin have none.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.hpp"
#include "fabric/report_fields.hpp"
#include "fabric/verdict.hpp"

namespace amldist::fabric {

/// A node as a JSON object with the fields of visit_fields(), one check per line; bytes that are not ASCII as \u00NN.
[[nodiscard]] std::string to_json(const NodeReport& node);

/// VERDICT<TAB>ID<TAB>EVIDENCE<TAB>REMEDY lines, by which the task's process tells the plugin.
[[nodiscard]] std::string to_lines(const std::vector<Check>& checks);
/// Errors: invalid_argument for anything else, and above 64 checks.
[[nodiscard]] Result<std::vector<Check>> checks_from_lines(std::string_view text);

}  // namespace amldist::fabric
