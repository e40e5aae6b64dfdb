// Whether a step's calls are recorded, and what to do when it makes no progress. The first setting that applies wins:
// the user's key, the partition's trace.PARTITION=, the site's trace=.
#pragma once

#include <cstdint>
#include <string_view>

#include "launch/option/spec.hpp"
#include "launch/site/site_policy.hpp"

namespace amldist::launch {

struct TraceChoice {
  bool on = false;
  std::uint32_t hang = 0;                  ///< seconds without progress until the step counts as hung; 0: do not watch
  bool ends = false;                       ///< the step is then ended; only the user can ask for that
  std::uint32_t busy = default_hang_busy;  ///< how many times longer a rank that computes may stay away
  bool has_launchers = false;              ///< the tasks start the ranks, and number them

  friend bool operator==(const TraceChoice&, const TraceChoice&) = default;
};

[[nodiscard]] TraceChoice choose_trace(const SitePolicy& policy, const Spec& spec, std::string_view partition);

}  // namespace amldist::launch
