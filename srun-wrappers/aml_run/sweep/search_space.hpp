// The search space of a sweep: parameters and the distributions of their values. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "aml_run/yaml/yaml_tree.hpp"
#include "base/text/result.hpp"

namespace amldist::run {

/// One parameter. Every distribution is given by its quantile at u, 0 <= u < 1, so that a random number and a point of
/// a Sobol sequence are used alike.
struct Parameter {
  enum class Kind { choice, randint, uniform, loguniform, normal, lognormal };

  std::string name;
  Kind kind = Kind::choice;
  std::vector<std::string> values = {};  ///< choice: as text for the command
  double low = 0;                        ///< uniform: the minimum; normal: mu
  double high = 1;                       ///< uniform: the limit; normal: sigma; randint: the number of values
  double quantum = 0;                    ///< q: values are rounded to its multiples; 0: not rounded

  /// The value at `u`, as text.
  [[nodiscard]] std::string at(double u) const;
  [[nodiscard]] bool is_discrete() const noexcept { return kind == Kind::choice; }
};

/// Reads `search_space`. Errors: an unknown distribution, a key that is missing or wrong, with the place.
[[nodiscard]] Result<std::vector<Parameter>> read_search_space(std::string_view file, const YamlValue& space);

/// The quantile of the standard normal distribution; 0 < u < 1.
[[nodiscard]] double normal_quantile(double u) noexcept;

}  // namespace amldist::run
