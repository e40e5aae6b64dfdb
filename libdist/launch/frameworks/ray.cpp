// Ray: one task on each node, which starts Ray there (`aml-dist ray`, or `ray symmetric-run`). WORLD_SIZE counts nodes.
#include "base/text/text.hpp"
#include "launch/frameworks/translator.hpp"

namespace amldist::launch {

Result<void> translate_ray(const TaskFacts& task, EnvironmentPatch& patch) {
  patch.set("WORLD_SIZE", task.placement.map.nodes());
  patch.set("RAY_ADDRESS", text::concat({task.rendezvous.address, ":", std::to_string(task.rendezvous.port)}));
  return {};
}

}  // namespace amldist::launch
