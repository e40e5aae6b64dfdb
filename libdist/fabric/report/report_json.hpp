// A report as JSON and as lines. No JSON library, because the C ABI and the plugin must not need one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/text/result.hpp"
#include "fabric/report/report_fields.hpp"
#include "fabric/report/verdict.hpp"

namespace amldist::fabric {

/// A node as a JSON object with the fields of visit_fields(), one check per line; non-ASCII bytes become \u00NN.
[[nodiscard]] std::string to_json(const NodeReport& node);

/// Lines of VERDICT<TAB>ID<TAB>EVIDENCE<TAB>REMEDY, by which the task's process reports to the plugin.
[[nodiscard]] std::string to_lines(const std::vector<Check>& checks);
/// Errors: invalid_argument for a malformed text or more than 64 checks.
[[nodiscard]] Result<std::vector<Check>> checks_from_lines(std::string_view text);

}  // namespace amldist::fabric
