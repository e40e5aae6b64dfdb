// The calls that the batch scripts of aml-run make, as `aml-run --CALL ARGUMENT...`. Not for people.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace amldist::run {

/// Answers the call and returns the exit status. nullopt if it is not such a call.
[[nodiscard]] std::optional<int> answer_script(const std::vector<std::string>& words);

}  // namespace amldist::run
