// What the recorders of ranks showed when the ranks ended (rank_state.hpp): for whom the others ended. Slurm and PMIx
// kill the others within milliseconds of a first death, and MPI ends ranks whose calls do not match, so the order in
// which ends are reported says little.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trace/record/record_reader.hpp"

namespace amldist::step {

/// What recorders tell about the first of several ends.
struct RecordedCause {
  std::vector<std::uint32_t> ranks;  ///< for which the others waited when they ended, or whose call is wrong
  std::string node;                  ///< of the first of them
  std::string source;                ///< of the calls: "mpi", "amldist", ...
  /// "broadcast #28 (...): rank 2 (local 0) on node2 called allreduce #28 (...) instead"; empty: they have ended in no
  /// wrong call.
  std::string wrong_call;

  friend bool operator==(const RecordedCause&, const RecordedCause&) = default;
};

/// Keeps one state per rank and source, of a bounded number of ranks.
class LastStates {
 public:
  /// `tasks`: of the whole step.
  explicit LastStates(std::uint32_t tasks) : tasks_(tasks) {}

  /// The text of a state; anything else is dropped. The state of a rank that lives counts until the rank has ended.
  void take(std::string_view text);
  [[nodiscard]] std::size_t size() const noexcept { return states_.size(); }
  /// nullopt: nothing tells, or all ranks are stuck in a circle.
  [[nodiscard]] std::optional<RecordedCause> cause() const;

 private:
  std::uint32_t tasks_;
  std::map<std::pair<std::uint32_t, std::string>, trace::Recording> states_;  ///< by rank and source
};

}  // namespace amldist::step
