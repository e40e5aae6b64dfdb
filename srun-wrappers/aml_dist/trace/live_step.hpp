// A step that runs, as all of its nodes see it now: each node's part is read there, by a short step beside it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aml_dist/trace/nccl_ras.hpp"
#include "aml_dist/trace/trace_step.hpp"
#include "base/text/result.hpp"

namespace amldist::tools {

struct LiveStep {
  TracedStep step;
  std::map<std::uint32_t, std::string> stacks = {};  ///< by rank, where they were asked for
  std::optional<RasAnswer> ras = std::nullopt;       ///< where rank 0 uses NCCL
};

/// Whether a text is "JOBID" or "JOBID.STEP".
[[nodiscard]] bool is_step_id(std::string_view name) noexcept;

/// Asks every node of a running step for what its ranks wait in; takes as long as Slurm starts a step, and 0.3 s. With
/// `stacks` also where each process is, which takes up to two seconds for each rank of a node. Errors: not_found (no
/// such step runs), invalid_argument (the job has several), unavailable (Slurm's words, or nothing is recorded).
[[nodiscard]] Result<LiveStep> read_live_step(const std::string& name, bool stacks);

/// What one node prints for that, on standard output; returns an ExitStatus.
int print_own_states(const std::string& step, bool stacks);

/// Ranks with equal stacks together, most of them first: "3 ranks (0,2-3):", then the stack.
[[nodiscard]] std::string merged_stacks(const std::map<std::uint32_t, std::string>& stacks);

}  // namespace amldist::tools
