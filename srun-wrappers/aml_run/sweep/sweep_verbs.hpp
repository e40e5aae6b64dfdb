// What the scripts of a sweep ask aml-run:
//
//   --begin-trial FOLDER NUMBER           may the trial start, or is the sweep's time over?
//   --watch-trial FOLDER NUMBER JOB       ends the trial if the policy says so; goes with the script
//   --finish-sweep FOLDER                 puts the best trial's outputs in their places
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace amldist::run {

/// Answers one of them and returns the exit status. nullopt: something else was asked.
[[nodiscard]] std::optional<int> sweep_verb(const std::vector<std::string>& words);

}  // namespace amldist::run
