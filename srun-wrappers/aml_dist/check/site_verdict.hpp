// What a health check of the site's own has said, as a check of ours. Its output is not trusted.
#pragma once

#include <string>

#include "base/os/child_process.hpp"
#include "fabric/report/verdict.hpp"
#include "launch/site/site_check.hpp"

namespace amldist::tools {

/// The check "site.NAME". Unknown: the output is not of this format, or contradicts the exit status.
[[nodiscard]] fabric::Check read_site_verdict(const std::string& name, const launch::SiteCheck& site,
                                              const ChildOutput& output);

}  // namespace amldist::tools
