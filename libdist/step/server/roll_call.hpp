// Whether every node of a step has aml-dist: which have said so, and what Slurm knows of the others.
//
// A node that does not load the plugin starts its tasks without their variables, and nothing there can say so. So each
// node that has the plugin reports to srun and holds its tasks until all have reported. About a node that has not, srun
// asks Slurm. Tasks that run there were started without aml-dist. A step that is not there for long either has ended
// there already, since programs without their variables often end at once, or could not be started. A node that is slow
// (its prolog runs, another plugin works) has neither.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/time/clock.hpp"

namespace amldist::step {

/// What slurmd on a node says about the step.
enum class NodePresence {
  unknown,      ///< no answer
  absent,       ///< no step of this number
  in_prolog,    ///< the same where nodes run a prolog first, which may last
  starting,     ///< the step is there, without processes
  has_started,  ///< with processes
};

class RollCall {
 public:
  /// `hosts`: the step's nodes, each once; empty: not known, and then nothing is found out. `variables`: of the step's
  /// environment, which srun and slurmstepd compare each with each other before they start a task.
  RollCall(std::vector<std::string> hosts, Clock::time_point now, std::size_t variables = 0);

  /// A node reports, for the first time or again. False for one that is not in the step.
  bool take(std::string_view host, Clock::time_point now);
  /// Whether all have reported.
  [[nodiscard]] bool is_complete() const noexcept { return missing_.empty(); }

  /// When silence() is to be called next; nullopt: all have reported.
  [[nodiscard]] std::optional<Clock::time_point> due() const;
  /// The nodes that Slurm is to be asked about now: a few of those that have not reported, once no other node has
  /// reported for a second.
  [[nodiscard]] std::vector<std::string> to_ask(Clock::time_point now);
  void note(const std::string& host, NodePresence presence, Clock::time_point now);

  struct Verdict {
    std::vector<std::string> nodes;
    std::string sentence;  ///< what is wrong with them, without "aml-dist: "
  };
  /// nullopt: nothing is wrong yet.
  [[nodiscard]] std::optional<Verdict> verdict(Clock::time_point now) const;
  /// Where srun ends before all have reported, since nothing runs any more: about a few of the missing.
  [[nodiscard]] Verdict verdict_at_end() const;

 private:
  /// What Slurm has said of a node.
  struct Said {
    std::optional<Clock::time_point> started;       ///< since when its tasks have been seen
    std::optional<Clock::time_point> absent_since;  ///< without an answer of another kind
    std::chrono::seconds patience{};                ///< with its absence
  };
  enum class Fault { none, started, absent };
  [[nodiscard]] Verdict blame(std::vector<std::string> nodes, bool certain) const;
  [[nodiscard]] static Fault fault_of(const Said& node, Clock::time_point now);
  [[nodiscard]] std::vector<std::string> first_missing() const;

  std::set<std::string, std::less<>> missing_;
  std::map<std::string, Said, std::less<>> said_;  ///< of those of them that Slurm was asked about: few
  std::set<std::string, std::less<>> present_;
  std::chrono::seconds for_a_start_;  ///< to a node that is there
  Clock::time_point changed_;
  std::optional<Clock::time_point> asked_;
};

}  // namespace amldist::step
