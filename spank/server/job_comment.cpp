#include "spank/server/job_comment.hpp"

#include <exception>
#include <string>

#include "base/text/text.hpp"
#include "spank/slurm/slurm_api.hpp"

namespace amldist::spank {
namespace {

constexpr std::string_view our_beginning = "aml-dist: ";
/// slurmctld refuses a comment of 1024 bytes.
constexpr std::size_t longest_comment = 1000;

bool may_be_replaced(std::string_view comment) { return comment.empty() || comment.starts_with(our_beginning); }

}  // namespace

void comment_on_job(std::uint32_t job_id, std::uint32_t step_id, std::string_view sentence) noexcept {
  try {
    const auto present = comment_of_job(job_id);
    if (!present || !may_be_replaced(*present)) return;
    std::string comment = text::concat({our_beginning, "step ", std::to_string(step_id), ": ", sentence});
    if (comment.size() > longest_comment) comment.resize(longest_comment);
    static_cast<void>(set_comment_of_job(job_id, std::move(comment)));
  } catch (const std::exception&) {  // out of memory: the job has no comment
  }
}

}  // namespace amldist::spank
