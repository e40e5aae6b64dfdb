// The secret of a world: where it comes from, and whether it is good enough.
#pragma once

#include <optional>
#include <string_view>

#include "base/text/environment.hpp"
#include "launch/placement/process_identity.hpp"
#include "world/bootstrap/root_address.hpp"
#include "world/settings.hpp"
#include "world/wireup/secret_file.hpp"

namespace amldist::world {

/// The secret of a world's processes.
struct WorldSecret {
  world::Credentials credentials;
  std::optional<world::SecretFile> file;  ///< to be removed when all have joined
  std::string reason;                     ///< open: why there is no secret
};

/// The first available of: the caller's (`given`), AMLDIST_STEP_SECRET, one that comes with rank 0's address (PMIx,
/// MPI, a store), a file if all processes are on one machine. `job` names the step. Errors: unavailable if policy
/// `require` does not accept what there is; errors of the environment or the root address.
[[nodiscard]] Result<WorldSecret> find_world_secret(const EnvironmentReader& environment, launch::SecretPolicy policy,
                                                    const std::optional<world::Key>& given,
                                                    const launch::ProcessIdentity& identity, RootAddress& root,
                                                    std::string_view job, Clock::time_point deadline);

}  // namespace amldist::world
