// The variables of Ray's processes and of the driver.
#pragma once

#include <string>
#include <vector>

#include "aml_dist/ray/place.hpp"
#include "aml_dist/ray/program.hpp"

namespace amldist::ray {

/// The token of the step's cluster; empty where the step has no secret.
[[nodiscard]] std::string token_of(const Place& place);

/// `all` ("NAME=VALUE") with RAY_ADDRESS, the token, and ports that Ray takes from nothing else: the driver's. What the
/// user set of Ray's own stays.
[[nodiscard]] std::vector<std::string> variables_of_driver(std::vector<std::string> all, const Place& place,
                                                           const Program& program);
/// The same for Ray's processes, less those by which a library would take an actor or a trial for a rank of this step.
[[nodiscard]] std::vector<std::string> variables_of_ray(std::vector<std::string> all, const Place& place,
                                                        const Program& program);

}  // namespace amldist::ray
