// The srun line that a user gives to `aml-dist keep`: its options, its command, and the same line for chosen nodes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/text/environment.hpp"
#include "base/text/result.hpp"
#include "shared/slurm_options.hpp"

namespace amldist::keep {

class SrunLine {
 public:
  /// `words`: srun, its options, the command. Errors: invalid_argument, in one sentence: not srun, no command, nodes or
  /// a heterogeneous step named in the line.
  [[nodiscard]] static Result<SrunLine> parse(const std::vector<std::string>& words);

  /// The number of nodes that it asks for; 0: it does not say.
  [[nodiscard]] std::uint32_t nodes() const;

  /// Fixes the tasks per node for an allocation of `allocated` nodes, of which the step is to have `nodes`. The line's
  /// options count before the job's SLURM_NTASKS_PER_NODE and SLURM_NTASKS. Errors: invalid_argument, the tasks cannot
  /// be shared out, or with `may_shrink` not over fewer nodes.
  [[nodiscard]] Result<void> share_out(std::uint32_t allocated, std::uint32_t nodes, bool may_shrink,
                                       const EnvironmentReader& environment);

  struct Choice {
    std::vector<std::string> nodes;  ///< in the order of their ranks
    bool keeps_order = false;        ///< Slurm's own order would be another one
    bool kills_on_bad_exit = true;
    bool overlaps = false;  ///< another step may still have CPUs of these nodes
  };
  [[nodiscard]] std::vector<std::string> words_for(const Choice& choice, const EnvironmentReader& environment) const;

  [[nodiscard]] bool has_kind() const { return known_.has("aml-dist"); }
  /// The option --aml-dist; empty without one.
  [[nodiscard]] std::string option() const { return has_kind() ? std::string(known_.value_of("aml-dist")) : ""; }

 private:
  /// Whether the tasks can be placed by a list of these nodes in their order, which has a name for each task.
  [[nodiscard]] bool can_keep_order(std::span<const std::string> nodes) const;

  std::vector<std::string> options_;  ///< with "srun" in front, as given but for --nodes
  std::vector<std::string> command_;
  commands::SlurmOptions known_;  ///< by their long names
  std::uint32_t per_node_ = 0;    ///< 0: Slurm decides
  std::uint32_t total_ = 0;       ///< tasks in all where per_node_ is 0
};

}  // namespace amldist::keep
