// Whether a step's calls are recorded, and what follows when it stands still. The first that applies wins: the user's
// key, his partition's trace.PARTITION=, the site's trace=.
#pragma once

#include <cstdint>
#include <string_view>

#include "launch/option/spec.hpp"
#include "launch/site/site_policy.hpp"

namespace amldist::launch {

struct TraceChoice {
  bool on = false;
  std::uint32_t hang = 0;  ///< seconds until a standstill is a hang; 0: nobody watches
  bool ends = false;       ///< the step is ended then. Only the user can ask for that

  friend bool operator==(const TraceChoice&, const TraceChoice&) = default;
};

[[nodiscard]] TraceChoice choose_trace(const SitePolicy& policy, const Spec& spec, std::string_view partition);

}  // namespace amldist::launch
