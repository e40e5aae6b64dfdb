// A report as JSON and as lines, without a library: the C ABI and the plugin have none.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/result.hpp"
#include "fabric/checks.hpp"
#include "fabric/verdict.hpp"

namespace amldist::fabric {

/// Text in double quotes, escaped for JSON; bytes that are not ASCII as \u00NN.
[[nodiscard]] std::string json_text(std::string_view text);

/// {"id": ..., "verdict": ..., "evidence": ..., "remedy": ...}
[[nodiscard]] std::string to_json(const Check& check);

/// The array of checks, one per line, each line indented by `indent` blanks.
[[nodiscard]] std::string to_json(const std::vector<Check>& checks, std::size_t indent);

/// A node as an object: node, policy, verdict, checks, nccl_ib_hca, nccl_ib_gid_index.
[[nodiscard]] std::string to_json(std::string_view host, const Report& report, const FabricSettings& settings);

/// VERDICT<TAB>ID<TAB>EVIDENCE<TAB>REMEDY lines, by which the task's process tells the plugin.
[[nodiscard]] std::string to_lines(const std::vector<Check>& checks);
/// Errors: invalid_argument for anything else, and above 64 checks.
[[nodiscard]] Result<std::vector<Check>> checks_from_lines(std::string_view text);

}  // namespace amldist::fabric
