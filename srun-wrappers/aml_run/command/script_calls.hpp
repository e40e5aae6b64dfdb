// What the batch scripts of aml-run ask it, as `aml-run --CALL ARGUMENT...`. Not for people.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace amldist::run {

/// Answers the call and returns the exit status. nullopt: it is not one.
[[nodiscard]] std::optional<int> answer_script(const std::vector<std::string>& words);

}  // namespace amldist::run
