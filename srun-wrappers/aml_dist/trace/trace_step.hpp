// The recorders of one step, and the conclusions drawn from them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/result.hpp"
#include "trace/diagnosis/hang_diagnosis.hpp"
#include "trace/record/record_reader.hpp"

namespace amldist::tools {

/// Another witness beside our verdict.
struct Agreement {
  std::string witness;
  std::optional<bool> agrees;  ///< nullopt: one of both leaves it open, or the witness is not heard
  std::string sentence;
};

struct TracedStep {
  std::string folder;
  std::vector<trace::Recording> recordings;  ///< by rank; not empty
  std::vector<trace::Stall> stalls;
  std::optional<trace::HangDiagnosis> hang = std::nullopt;  ///< whose fault they are
  std::vector<Agreement> agreements = {};                   ///< what other witnesses say
  std::vector<std::string> problems;                        ///< files that are no recorders
  std::int64_t now_ns = 0;  ///< of a living step the present, of a dead one its last sign of life

  [[nodiscard]] std::uint32_t size() const { return recordings.front().size; }
  [[nodiscard]] const std::string& job() const { return recordings.front().job; }
};

/// A step's folder, by path, or by name under the places where this user's recorders are (root: all users').
[[nodiscard]] Result<std::string> find_step_folder(const std::string& name);

/// Reads and judges the recorders. Errors: no folder, no recorder in it, no readable recorder.
[[nodiscard]] Result<TracedStep> read_traced_step(const std::string& folder);

/// Whether processes of `host` run on this machine, judged by Slurm's name for it or its own.
[[nodiscard]] bool is_here(std::string_view host);

/// Folders of steps that can be read, newest first.
[[nodiscard]] std::vector<std::string> list_step_folders();

}  // namespace amldist::tools
