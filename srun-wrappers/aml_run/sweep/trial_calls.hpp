// What the scripts of a sweep ask aml-run; each returns the exit status.
#pragma once

#include <cstdint>
#include <string>

namespace amldist::run {

/// Whether a trial may start, or the sweep's time is over. Removes what an interrupted one reported.
[[nodiscard]] int begin_trial(const std::string& folder, std::uint32_t number);

/// Cancels `job`, which is the trial, when the policy says so; ends with the script that started it.
[[nodiscard]] int watch_trial(const std::string& folder, std::uint32_t number, const std::string& job);

/// Puts the best trial's outputs in their places.
[[nodiscard]] int finish_sweep(const std::string& folder);

}  // namespace amldist::run
