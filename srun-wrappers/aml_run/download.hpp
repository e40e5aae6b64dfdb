// An input behind https:, kept as a file that the job's first node fetches once.
#pragma once

#include <optional>
#include <string>

#include "aml_run/plan.hpp"

namespace amldist::run {

/// Where a URL's file is kept below `shared_folder`: UID/HOST/PATH. nullopt if it is not https:, or names no file.
[[nodiscard]] std::optional<Download> download_of(const std::string& shared_folder, const std::string& url);

}  // namespace amldist::run
