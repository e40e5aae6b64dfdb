// slurmstepd, as root, when a task has ended: why, as far as this node can know.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/os/answer_as_user.hpp"
#include "spank/slurm/handle.hpp"
#include "spank/stepd/stepd_session.hpp"
#include "step/cause/cause.hpp"
#include "step/cause/error_file.hpp"

namespace amldist::spank {

/// Where the user's rights may find something about this end; rank and time are the caller's to add.
[[nodiscard]] step::ErrorPlaces error_places(const NodePlan& plan, const Handle& handle, const UserRights& user,
                                             std::uint32_t wait_status);

/// The causes of a task's end. Reads the kernel's files and nothing of the user's.
[[nodiscard]] std::vector<step::Cause> causes_of(StepdSession& session, const Handle& handle, const std::string& host,
                                                 std::uint32_t wait_status, step::UserFindings findings);

}  // namespace amldist::spank
