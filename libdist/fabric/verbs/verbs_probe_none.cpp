// Replaces the probe in a build without libibverbs' headers: verification reports that instead of passing.
#include "fabric/verbs/verbs_probe.hpp"

namespace amldist::fabric {

VerbsFacts probe_verbs(const NodeFacts& /*node*/, const CheckRequest& /*request*/,
                       std::chrono::milliseconds /*timeout*/) {
  VerbsFacts facts;
  facts.verbs_missing = true;
  facts.reason = "this build has no verbs: rebuild it with libibverbs' headers (Debian: libibverbs-dev)";
  return facts;
}

}  // namespace amldist::fabric
