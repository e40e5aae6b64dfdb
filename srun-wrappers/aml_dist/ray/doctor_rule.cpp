// ray.init() without an address (ray/_private/worker.py, 2.60): the cluster at RAY_ADDRESS; without it, one that `ray
// start` left on this node, or a new one of this node alone.
#include "aml_dist/doctor/rules.hpp"
#include "base/text/text.hpp"

namespace amldist::doctor {

using text::concat;

FrameworkResult examine_ray(const TaskContext& here) {
  constexpr const char* remedy = "srun --ntasks-per-node=1 --aml-dist=ray aml-dist ray -- COMMAND";
  FrameworkResult result{.environment = "RAY_ADDRESS", .size = here.nodes(), .master = here.text("RAY_ADDRESS")};
  if (result.master.empty()) {
    return with(result, {Outcome::alone, "RAY_ADDRESS is not set: ray.init() starts a Ray of this node alone", remedy});
  }
  if (here.tasks_here() > 1) {
    return with(result,
                {Outcome::fails,
                 concat({text::count(here.tasks_here(), "task"), " of this node would each start a Ray"}), remedy});
  }
  if (here.nodes() > 1 && is_loopback(result.master.substr(0, result.master.rfind(':')))) {
    return with(result, {Outcome::hangs, "RAY_ADDRESS is another machine on each node", "unset RAY_ADDRESS"});
  }
  return result;
}

}  // namespace amldist::doctor
