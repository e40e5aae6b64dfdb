// Calls of aml-run in the scripts of a sweep; each returns the exit status.
#pragma once

#include <cstdint>
#include <string>

namespace amldist::run {

/// Whether a trial may start, or the sweep's time has passed. Removes the reports of an interrupted one.
[[nodiscard]] int begin_trial(const std::string& folder, std::uint32_t number);

/// Cancels `job`, which is the trial, when the policy demands it; ends with the script that started it.
[[nodiscard]] int watch_trial(const std::string& folder, std::uint32_t number, const std::string& job);

/// Puts the best trial's outputs in their places.
[[nodiscard]] int finish_sweep(const std::string& folder);

}  // namespace amldist::run
