#include "spank/stepd/parameter_servers.hpp"

namespace amldist::spank {
namespace {

std::uint32_t chief_and_workers(const launch::TensorflowRoles& roles) {
  return roles.count(launch::TensorflowRole::chief) + roles.count(launch::TensorflowRole::worker);
}

}  // namespace

bool has_servers(const launch::Spec& spec, std::uint32_t tasks) {
  if (spec.kind != launch::Kind::tensorflow || spec.counts.parameter_servers.value_or(0) == 0) return false;
  return chief_and_workers({spec.counts, tasks}) > 0;
}

std::uint32_t rank_of_stand_in(const launch::Spec& spec, std::uint32_t tasks) {
  return has_servers(spec, tasks) ? chief_and_workers({spec.counts, tasks}) : 0;
}

bool needs_task_monitor(const launch::Spec& spec, std::uint32_t tasks, std::uint32_t rank) {
  if (!has_servers(spec, tasks)) return false;
  const launch::TensorflowRoles roles{spec.counts, tasks};
  const launch::TensorflowRole role = roles.role_of(rank);
  const bool has_chief = roles.count(launch::TensorflowRole::chief) > 0;
  return role == launch::TensorflowRole::server || (role == launch::TensorflowRole::worker && has_chief);
}

}  // namespace amldist::spank
