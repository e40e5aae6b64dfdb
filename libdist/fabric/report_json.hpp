// A report as JSON and as lines. No JSON library, because the C ABI and the plugin must not need one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.hpp"
#include "fabric/checks.hpp"
#include "fabric/verdict.hpp"

namespace amldist::fabric {

/// Text in double quotes, escaped for JSON; non-ASCII bytes become \u00NN.
[[nodiscard]] std::string json_text(std::string_view text);

/// {"id": ..., "verdict": ..., "evidence": ..., "remedy": ...}
[[nodiscard]] std::string to_json(const Check& check);

/// The array of checks, one per line, each line indented by `indent` blanks.
[[nodiscard]] std::string to_json(const std::vector<Check>& checks, std::size_t indent);

/// A node as an object: node, policy, verdict, checks, nccl_ib_hca, nccl_ib_gid_index.
[[nodiscard]] std::string to_json(std::string_view host, const Report& report, const FabricSettings& settings);

/// Lines of VERDICT<TAB>ID<TAB>EVIDENCE<TAB>REMEDY, by which the task's process reports to the plugin.
[[nodiscard]] std::string to_lines(const std::vector<Check>& checks);
/// Errors: invalid_argument for a malformed text or more than 64 checks.
[[nodiscard]] Result<std::vector<Check>> checks_from_lines(std::string_view text);

}  // namespace amldist::fabric
