#include "aml_run/sweep/sampling.hpp"

#include <array>
#include <bit>

#include "base/text/text.hpp"

namespace amldist::run {
namespace {

using text::concat;

/// SplitMix64: small, seeded by any number, the same on every machine.
class Generator {
 public:
  explicit Generator(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111eb;
    return z ^ (z >> 31U);
  }
  /// 0 <= u < 1, with 53 bits.
  double unit() { return static_cast<double>(next() >> 11U) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

/// Degree, coefficients of the primitive polynomial and first direction numbers, from the table new-joe-kuo-6.
struct Direction {
  unsigned degree;
  unsigned polynomial;
  std::array<std::uint32_t, 7> first;
};

constexpr std::array<Direction, most_sobol_dimensions - 1> directions = {{{1, 0, {1}},
                                                                          {2, 1, {1, 3}},
                                                                          {3, 1, {1, 3, 1}},
                                                                          {3, 2, {1, 1, 1}},
                                                                          {4, 1, {1, 1, 3, 3}},
                                                                          {4, 4, {1, 3, 5, 13}},
                                                                          {5, 2, {1, 1, 5, 5, 17}},
                                                                          {5, 4, {1, 1, 5, 5, 5}},
                                                                          {5, 7, {1, 1, 7, 11, 19}},
                                                                          {5, 11, {1, 1, 5, 1, 1}},
                                                                          {5, 13, {1, 1, 1, 3, 11}},
                                                                          {5, 14, {1, 3, 5, 5, 31}},
                                                                          {6, 1, {1, 3, 3, 9, 7, 49}},
                                                                          {6, 13, {1, 1, 1, 15, 21, 21}},
                                                                          {6, 16, {1, 3, 1, 13, 27, 49}},
                                                                          {6, 19, {1, 1, 1, 15, 7, 5}},
                                                                          {6, 22, {1, 3, 1, 15, 13, 25}},
                                                                          {6, 25, {1, 1, 5, 5, 19, 61}},
                                                                          {7, 1, {1, 3, 7, 11, 23, 15, 103}},
                                                                          {7, 4, {1, 3, 7, 13, 13, 15, 69}}}};

std::array<std::uint32_t, 32> direction_numbers(std::size_t dimension) {
  std::array<std::uint32_t, 32> v{};
  if (dimension == 0) {
    for (unsigned i = 0; i < 32; ++i) v[i] = 1U << (31U - i);
    return v;
  }
  const Direction& row = directions[dimension - 1];
  for (unsigned i = 0; i < 32; ++i) {
    if (i < row.degree) {
      v[i] = row.first[i] << (31U - i);
      continue;
    }
    v[i] = v[i - row.degree] ^ (v[i - row.degree] >> row.degree);
    for (unsigned k = 1; k < row.degree; ++k) {
      if (((row.polynomial >> (row.degree - 1 - k)) & 1U) != 0) v[i] ^= v[i - k];
    }
  }
  return v;
}

Result<std::vector<Trial>> grid(const std::vector<Parameter>& space, std::uint32_t count) {
  std::uint64_t combinations = 1;
  for (const Parameter& parameter : space) {
    if (!parameter.is_discrete()) {
      return Error{Errc::invalid_argument,
                   concat({"search_space.", parameter.name,
                           " is not a choice, and a grid has choices only: use random or sobol"})};
    }
    combinations *= parameter.values.size();
    if (combinations > most_trials) break;
  }
  if (combinations > most_trials && count > most_trials) {
    return Error{Errc::limit, concat({"the grid has more than ", std::to_string(most_trials),
                                      " combinations: set limits.max_total_trials"})};
  }
  std::vector<Trial> trials;
  std::vector<std::size_t> at(space.size(), 0);
  while (trials.size() < count) {
    Trial trial;
    for (std::size_t i = 0; i < space.size(); ++i) trial.push_back(space[i].values[at[i]]);
    trials.push_back(std::move(trial));
    std::size_t digit = space.size();
    while (digit > 0 && ++at[digit - 1] == space[digit - 1].values.size()) at[--digit] = 0;
    if (digit == 0) break;
  }
  return trials;
}

}  // namespace

std::vector<std::vector<double>> sobol_points(std::size_t dimensions, std::uint32_t count) {
  std::vector<std::vector<double>> points(count, std::vector<double>(dimensions, 0));
  for (std::size_t dimension = 0; dimension < dimensions; ++dimension) {
    const auto v = direction_numbers(dimension);
    std::uint32_t x = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      points[i][dimension] = static_cast<double>(x) * 0x1p-32;
      x ^= v[static_cast<std::size_t>(std::countr_one(i))];
    }
  }
  return points;
}

Result<std::vector<Trial>> sample(const std::vector<Parameter>& space, Sampling sampling, std::uint32_t count,
                                  std::uint64_t seed) {
  if (sampling == Sampling::grid) return grid(space, count);
  std::vector<Trial> trials(count);
  if (sampling == Sampling::random) {
    Generator generator(seed);
    for (Trial& trial : trials) {
      for (const Parameter& parameter : space) trial.push_back(parameter.at(generator.unit()));
    }
    return trials;
  }
  if (space.size() > most_sobol_dimensions) {
    return Error{Errc::limit, concat({"a Sobol sequence has at most ", std::to_string(most_sobol_dimensions),
                                      " parameters here: use random"})};
  }
  // A seed moves all points by the same bits, which preserves their even distribution; without a seed the point of
  // zeros is left out.
  Generator generator(seed);
  std::vector<std::uint32_t> shift;
  for (std::size_t i = 0; i < space.size(); ++i)
    shift.push_back(seed == 0 ? 0 : static_cast<std::uint32_t>(generator.next()));
  const std::uint32_t first = seed == 0 ? 1 : 0;
  const auto points = sobol_points(space.size(), count + first);
  for (std::uint32_t i = 0; i < count; ++i) {
    for (std::size_t k = 0; k < space.size(); ++k) {
      const auto bits = static_cast<std::uint32_t>(points[i + first][k] * 0x1p32) ^ shift[k];
      trials[i].push_back(space[k].at(static_cast<double>(bits) * 0x1p-32));
    }
  }
  return trials;
}

}  // namespace amldist::run
