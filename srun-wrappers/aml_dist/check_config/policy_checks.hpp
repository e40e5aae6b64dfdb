// Whether the site's settings can have the effect that they ask for: each is valid by itself, and still names what is
// not there or excludes another.
#pragma once

#include "aml_dist/check_config/finding.hpp"
#include "launch/site/site_policy.hpp"

namespace amldist::tools {

/// Adds what is wrong with the policy on this machine. Findings have no line: a setting may come from the file or from
/// plugstack.conf. Asks Slurm for its partitions, for at most 10 s; without an answer they are not compared.
void check_policy(const launch::SitePolicy& policy, Findings& findings);

}  // namespace amldist::tools
