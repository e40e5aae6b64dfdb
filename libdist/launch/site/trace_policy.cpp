#include "launch/site/trace_policy.hpp"

namespace amldist::launch {

TraceChoice choose_trace(const SitePolicy& policy, const Spec& spec, std::string_view partition) {
  const auto found = policy.trace_of_partition.find(partition);
  const bool of_site = found != policy.trace_of_partition.end() ? found->second : policy.trace;
  if (spec.kind == Kind::none || !(spec.hang || spec.trace.value_or(of_site))) return {};
  const bool ends = spec.hang && spec.hang_action.value_or(HangAction::end) == HangAction::end;
  return {true, spec.hang.value_or(policy.hang), ends, spec.hang_busy.value_or(default_hang_busy),
          spec.launch == Launch::per_node};
}

}  // namespace amldist::launch
