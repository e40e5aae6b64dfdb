// The secret of a step, as its launcher passes it to each process: AMLDIST_STEP_SECRET, 64 hexadecimal digits. The
// plugin makes one for every step; it is as private as the environment.
#pragma once

#include "base/text/environment.hpp"
#include "base/text/result.hpp"
#include "world/wireup/key.hpp"

namespace amldist::world {

/// Open if the environment has no secret. Errors: invalid_argument for a malformed one, which the message does not
/// contain.
[[nodiscard]] Result<Credentials> credentials_of_environment(const EnvironmentReader& environment);

}  // namespace amldist::world
