// The secret of a world: where it comes from, and whether it is good enough.
#pragma once

#include <optional>
#include <string_view>

#include "collective/bootstrap/root_address.hpp"
#include "core/environment.hpp"
#include "core/settings.hpp"
#include "placement/process_identity.hpp"
#include "wireup/secret_file.hpp"

namespace amldist::collective {

/// What a world's processes know and strangers do not.
struct WorldSecret {
  wireup::Credentials credentials;
  std::optional<wireup::SecretFile> file;  ///< to be removed when all have come
  std::string reason;                      ///< open: why there is no secret
};

/// The first of: the caller's (`given`), AMLDIST_STEP_SECRET, one that comes with rank 0's address (PMIx, MPI, a
/// store), a file where all processes are on one machine. `job` names the step. Errors: unavailable, where policy
/// `require` does not take what there is; what the environment or the root address says.
[[nodiscard]] Result<WorldSecret> find_world_secret(const EnvironmentReader& environment, SecretPolicy policy,
                                                    const std::optional<wireup::Key>& given,
                                                    const ProcessIdentity& identity, RootAddress& root,
                                                    std::string_view job, Clock::time_point deadline);

}  // namespace amldist::collective
