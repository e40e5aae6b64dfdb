// A typed spank_t: items as Results, variables of any length.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/environment.hpp"
#include "base/text/result.hpp"
#include "spank/slurm/slurm_headers.hpp"

namespace amldist::spank {

/// Wraps the handle of one callback; valid only during it. Not thread-safe, as SPANK is not.
class Handle {
 public:
  explicit Handle(spank_t spank) noexcept : spank_(spank) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() = default;

  [[nodiscard]] spank_t raw() const noexcept { return spank_; }

  /// Items that are one number. Errors: unavailable, with Slurm's reason.
  [[nodiscard]] Result<std::uint32_t> number(spank_item_t item, const char* name) const;
  /// S_JOB_LOCAL_TO_GLOBAL_ID for one local id below the local task count.
  [[nodiscard]] Result<std::uint32_t> global_rank(std::uint32_t local_id) const;

  /// The command of the step's tasks; empty: not known.
  [[nodiscard]] std::vector<std::string> command() const;
  /// Its first word; empty: not known.
  [[nodiscard]] std::string program() const;

  /// A variable of the job's (in task_init: the task's) environment; remote contexts only.
  [[nodiscard]] std::optional<std::string> variable(std::string_view name) const;
  /// The same as a function; valid as long as this handle, which must not move meanwhile.
  [[nodiscard]] EnvironmentReader environment() const;
  /// Errors: unavailable if any variable so far could not be read. Call it after reading: a variable wrongly taken for
  /// unset would give this task another environment than the others get.
  [[nodiscard]] Result<void> environment_was_read() const;
  /// Writes a patch. Errors: internal, with the variable's name.
  [[nodiscard]] Result<void> apply(const EnvironmentPatch& patch) const;

 private:
  spank_t spank_;
  mutable std::optional<spank_err_t> read_error_;  // the first error of variable()
};

}  // namespace amldist::spank
