// What the recorders of ranks showed when the ranks ended (messages/rank_state.hpp): for whom the others ended. Slurm
// and PMIx kill the others within milliseconds of a first death, and MPI ends ranks whose calls do not match, so the
// order in which ends are reported says little.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "step/messages/failure_report.hpp"
#include "trace/record/record_reader.hpp"

namespace amldist::step {

/// Keeps one state per rank and source, of a bounded number of ranks.
class LastStates {
 public:
  /// `tasks`: of the whole step.
  explicit LastStates(std::uint32_t tasks) : tasks_(tasks) {}

  /// The text of a state; anything else is dropped. The state of a rank that lives counts until the rank has ended.
  void take(std::string_view text);
  [[nodiscard]] std::size_t size() const noexcept { return states_.size(); }
  /// Whether a rank has made calls of MPI; true where no state is known.
  [[nodiscard]] bool has_mpi() const;
  /// A wrong call that libamldist has found comes first: it has asked all members of the group while they lived, and
  /// the rest follows from it. Where calls do not match and nothing tells which is wrong, the cause names no rank.
  /// nullopt: nothing tells, or all ranks are stuck in a circle.
  [[nodiscard]] std::optional<RecordedCause> cause() const;

 private:
  [[nodiscard]] std::optional<RecordedCause> told_wrong_call() const;

  std::uint32_t tasks_;
  std::map<std::pair<std::uint32_t, std::string>, trace::Recording> states_;  ///< by rank and source
};

}  // namespace amldist::step
