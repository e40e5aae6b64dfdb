// PyTorch's own flight recorder: reads its dumps as recordings, and writes recordings as such dumps.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "aml_dist/trace/trace_step.hpp"
#include "base/text/result.hpp"

namespace amldist::tools {

/// Reads dumps of the ranks of one step, "nccl_trace_rank_3": the number at the end of a name is the rank. They are
/// read as data; nothing in them is executed. Processes count as alive, because they wrote the dumps while they waited.
/// Errors: a file that is not a dump, a name without a rank, two files of one rank.
[[nodiscard]] Result<TracedStep> read_torch_dumps(const std::vector<std::string>& files);

/// PyTorch's name of an operation; empty where it has none. Operations that it does not tell apart have the same.
[[nodiscard]] std::string_view torch_name(calls::Operation operation) noexcept;

/// Writes `folder`/rank_N for each rank, for torchfrtrace. The folder is made if it is missing. Errors: a file that
/// cannot be written.
[[nodiscard]] Result<void> write_torch_dumps(const TracedStep& step, const std::string& folder);

}  // namespace amldist::tools
