// What only Slurm's accounting knows about a job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace amldist::spank {

/// The user who had this job cancelled: "alice", or "user 20001" without a name. nullopt: nobody, there is no slurmdbd,
/// or it does not answer. Leaves the standard streams of this process closed, for libslurm writes an error there: call
/// it in a process of its own, which may be killed.
[[nodiscard]] std::optional<std::string> canceller_of_job(std::uint32_t job_id);

}  // namespace amldist::spank
