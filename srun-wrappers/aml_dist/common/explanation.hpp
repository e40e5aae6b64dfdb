// The content of `aml-dist explain`: a step's plan, and the environment of each of its tasks.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/text/environment.hpp"
#include "base/text/result.hpp"
#include "launch/frameworks/task_environment.hpp"
#include "launch/placement/identity.hpp"

namespace amldist::tools {

/// One task, whether computed or observed.
struct ExplainedTask {
  launch::Identity identity;
  std::string host;
  EnvironmentPatch environment;
};

/// A step with a known layout.
struct Explanation {
  launch::StepPlan plan;
  /// The environment that a task would have without aml-dist.
  std::function<EnvironmentReader(std::uint32_t rank)> inherited;
  /// The task that runs this program: shown as it is, not as computed.
  std::optional<ExplainedTask> own = std::nullopt;

  /// The task with this rank, below the map's size. Errors: as of task_environment().
  [[nodiscard]] Result<ExplainedTask> task(std::uint32_t rank) const {
    auto patch = task_environment(plan, rank, inherited(rank));
    if (!patch) return patch.error();
    if (own && own->identity.rank == rank) patch = observed(*patch, own->environment);
    return ExplainedTask{identity_of(plan.placement.map, rank), plan.placement.host_of(rank), std::move(*patch)};
  }

 private:
  /// The variables that are set, in the order in which they were computed, so that every task of a step prints them
  /// alike.
  static EnvironmentPatch observed(const EnvironmentPatch& computed, const EnvironmentPatch& there) {
    EnvironmentPatch out;
    for (const auto& change : computed.changes()) {
      if (const auto value = there.value_of(change.name)) out.set(change.name, std::string(*value));
      else out.unset(change.name);
    }
    for (const auto& change : there.changes()) {
      if (change.value) out.set(change.name, *change.value);
    }
    return out;
  }
};

}  // namespace amldist::tools
