// What nodes of a step are compared by at its launch (versions, settings, NVLink domain): each node's helper puts up a
// sheet of traits as a notice for srun (step_messages/notice_board.hpp), and srun compares them before the votes are
// counted. An srun of an older release keeps the notice and compares nothing.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.hpp"
#include "core/spec.hpp"
#include "fabric/between_nodes/job_checks.hpp"

namespace amldist::fabric {

/// The number of the notices with traits: beyond the rounds of any writes between nodes.
inline constexpr std::uint32_t traits_round = 99'999;

/// One node's sheet.
struct TraitSheet {
  std::uint32_t nodes = 1;  ///< of the step
  RdmaPolicy policy = RdmaPolicy::off;
  NodeSummary node;  ///< host and traits only
};

/// Without ';'. What the votes compare themselves (the partition keys) and what may differ is left out.
[[nodiscard]] std::string to_text(const TraitSheet& sheet);
/// Errors: invalid_argument.
[[nodiscard]] Result<TraitSheet> trait_sheet_from_text(std::string_view text);

/// srun's side: the sheets of all nodes.
class StepTraits {
 public:
  /// A node's sheet; a second one of the same node changes nothing. What is malformed is ignored.
  void take(std::uint32_t node, std::string_view text);
  /// What differs, returned once, when the sheets of all nodes are there.
  [[nodiscard]] std::vector<Difference> differences();
  [[nodiscard]] RdmaPolicy policy() const noexcept { return policy_; }

 private:
  std::map<std::uint32_t, NodeSummary> nodes_;
  std::uint32_t expected_ = 0;
  RdmaPolicy policy_ = RdmaPolicy::off;
  bool compared_ = false;
};

}  // namespace amldist::fabric
