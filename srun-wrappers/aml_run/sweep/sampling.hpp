// The trials of a sweep, all chosen before the first one starts; the same seed gives the same trials. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "aml_run/sweep/search_space.hpp"
#include "base/text/result.hpp"

namespace amldist::run {

enum class Sampling { grid, random, sobol };

/// Values of one trial, in the order of the parameters.
using Trial = std::vector<std::string>;

inline constexpr std::uint32_t most_trials = 10'000;

/// The trials: with `grid` all combinations, the last parameter changing fastest, but at most `count`. Errors: limit,
/// too many combinations or parameters; invalid_argument, a grid over a parameter that is not a choice.
[[nodiscard]] Result<std::vector<Trial>> sample(const std::vector<Parameter>& space, Sampling sampling,
                                                std::uint32_t count, std::uint64_t seed);

/// Most parameters of a Sobol sequence here.
inline constexpr std::size_t most_sobol_dimensions = 21;

/// The first `count` points of the Sobol sequence with the direction numbers of Joe and Kuo (2008), in Gray code order,
/// from the point of zeros on; `dimensions` up to most_sobol_dimensions. Each number is 0 <= x < 1, with 32 bits.
[[nodiscard]] std::vector<std::vector<double>> sobol_points(std::size_t dimensions, std::uint32_t count);

}  // namespace amldist::run
