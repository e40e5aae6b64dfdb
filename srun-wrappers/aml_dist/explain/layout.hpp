// A layout as a person types it: nodes and tasks, and the rule or the list that distributes them.
#pragma once

#include <string>

#include "base/text/result.hpp"
#include "launch/placement/step_facts.hpp"

namespace amldist::tools {

/// The options that describe a layout; empty: not given. In a heterogeneous step each holds the values of its
/// components, separated by " : ", or one value for all of them.
struct LayoutOptions {
  std::string nodelist;        ///< --nodelist LIST, Slurm's compressed form
  std::string tasks_per_node;  ///< --tasks-per-node SPEC, "2(x3),1"; one number means that many on every node
  std::string distribution;    ///< --distribution block|cyclic|plane=N
  std::string mapping;         ///< --mapping "(vector,(0,4,2))"
  std::string hostfile;        ///< --hostfile FILE, one host per rank, as srun's SLURM_HOSTFILE
};

/// Whether any of the options is given.
[[nodiscard]] bool describes_a_layout(const LayoutOptions& layout);

/// The placement that the options describe, components joined as Slurm joins them. Errors: invalid_argument or mismatch
/// with the option's name; not_found for the file.
[[nodiscard]] Result<launch::Placement> make_placement(const LayoutOptions& options);

}  // namespace amldist::tools
