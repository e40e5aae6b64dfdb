// An input behind https: as a file that the job's first node fetches once.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aml_run/plan.hpp"

namespace amldist::run {

/// Where a URL's file is kept below `folder`: UID/HOST/PATH. nullopt: it is not https:, or names no file.
[[nodiscard]] std::optional<std::string> download_place(std::string_view folder, std::string_view url);

/// The lines that fetch; empty: nothing is to be fetched.
[[nodiscard]] std::vector<std::string> download_lines(const std::vector<Download>& downloads);

}  // namespace amldist::run
