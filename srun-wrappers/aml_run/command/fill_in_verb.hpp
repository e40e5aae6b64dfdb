// `aml-run --fill-in TEXT EXPRESSION=VALUE...`: what a batch script calls to put the values of ${{...}} into a text
// that it then gives to bash. Not for people.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace amldist::run {

/// Answers the verb, as --fill-in or --fill-in-literally, and returns the exit status. nullopt: something else was
/// asked.
[[nodiscard]] std::optional<int> fill_in_verb(const std::vector<std::string>& words);

}  // namespace amldist::run
