#include "spank/parameter_servers.hpp"

namespace amldist::spank {

TensorflowRoles roles_of(const StepPlan& plan) { return {plan.spec.counts, plan.placement.map.size()}; }

bool has_servers(const StepPlan& plan) {
  if (plan.spec.kind != Kind::tensorflow || plan.spec.counts.parameter_servers.value_or(0) == 0) return false;
  const TensorflowRoles roles = roles_of(plan);
  return roles.count(TensorflowRole::chief) + roles.count(TensorflowRole::worker) > 0;
}

std::uint32_t first_server(const StepPlan& plan) {
  const TensorflowRoles roles = roles_of(plan);
  return roles.count(TensorflowRole::chief) + roles.count(TensorflowRole::worker);
}

bool needs_task_monitor(const StepPlan& plan, std::uint32_t rank) {
  if (!has_servers(plan)) return false;
  const TensorflowRoles roles = roles_of(plan);
  const TensorflowRole role = roles.role_of(rank);
  const bool has_chief = roles.count(TensorflowRole::chief) > 0;
  return role == TensorflowRole::server || (role == TensorflowRole::worker && has_chief);
}

}  // namespace amldist::spank
