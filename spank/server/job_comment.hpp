// What went wrong in a step, as the comment of its job: sacct shows it long after the job's output is gone.
#pragma once

#include <cstdint>
#include <string_view>

namespace amldist::spank {

/// The job's comment becomes "aml-dist: step STEP: SENTENCE". Only where the site wants that (job_comment=on), and only
/// if the comment is empty or one of ours: a user's own stays. Done by srun, so with the user's rights and on no job of
/// anybody else's. Two remote calls; what fails is not told, since the line in the job's output says the same.
void comment_on_job(std::uint32_t job_id, std::uint32_t step_id, std::string_view sentence) noexcept;

}  // namespace amldist::spank
