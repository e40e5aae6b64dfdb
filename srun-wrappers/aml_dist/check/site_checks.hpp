// The health checks of the site's own, which its file names (site_check.NAME=): run beside each other, each in a
// process group of its own, with limits of time and of output.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "fabric/report/verdict.hpp"
#include "launch/site/site_policy.hpp"

namespace amldist::tools {

/// The settings of `file`, or for "" of the file that plugstack.conf names. It must be root's alone, as for the plugin,
/// since root runs what it names: else SitePolicy::refusal says why it is not used.
[[nodiscard]] launch::SitePolicy read_site_policy(const std::string& file);

/// One check for each, in the order of their names: "site.nhc". None takes longer than its own limit or `longest`.
/// Whatever they leave running is ended.
[[nodiscard]] std::vector<fabric::Check> run_site_checks(const launch::SitePolicy& policy,
                                                         std::chrono::seconds longest);

}  // namespace amldist::tools
