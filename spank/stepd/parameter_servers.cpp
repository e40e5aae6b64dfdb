#include "spank/stepd/parameter_servers.hpp"

namespace amldist::spank {

launch::TensorflowRoles roles_of(const launch::StepPlan& plan) { return {plan.spec.counts, plan.placement.map.size()}; }

bool has_servers(const launch::StepPlan& plan) {
  if (plan.spec.kind != launch::Kind::tensorflow || plan.spec.counts.parameter_servers.value_or(0) == 0) return false;
  const launch::TensorflowRoles roles = roles_of(plan);
  return roles.count(launch::TensorflowRole::chief) + roles.count(launch::TensorflowRole::worker) > 0;
}

std::uint32_t first_server(const launch::StepPlan& plan) {
  const launch::TensorflowRoles roles = roles_of(plan);
  return roles.count(launch::TensorflowRole::chief) + roles.count(launch::TensorflowRole::worker);
}

bool needs_task_monitor(const launch::StepPlan& plan, std::uint32_t rank) {
  if (!has_servers(plan)) return false;
  const launch::TensorflowRoles roles = roles_of(plan);
  const launch::TensorflowRole role = roles.role_of(rank);
  const bool has_chief = roles.count(launch::TensorflowRole::chief) > 0;
  return role == launch::TensorflowRole::server || (role == launch::TensorflowRole::worker && has_chief);
}

}  // namespace amldist::spank
