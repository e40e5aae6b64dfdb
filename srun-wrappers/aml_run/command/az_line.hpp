// Lines of Azure's command line, "az ml job create -f job.yml --stream", in aml-run's own words.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/text/result.hpp"

namespace amldist::run {

struct AzLine {
  std::vector<std::string> words;  ///< for aml-run
  std::vector<std::string> notes;  ///< sentences about what has no effect here
};

/// Reads "az ml job VERB ...", "ml job VERB ..." and "job VERB ..."; words that are not az's stay as they are. nullopt:
/// it is no such line. Errors: invalid_argument, in one sentence.
[[nodiscard]] Result<std::optional<AzLine>> read_az_line(const std::vector<std::string>& words);

/// Whether az ml job has an option of this name, such as "--web", and aml-run has none.
[[nodiscard]] bool is_option_of_az(std::string_view name);

}  // namespace amldist::run
