#include "step/messages/job_record.hpp"

#include <limits>
#include <utility>

#include "base/text/text.hpp"
#include "step/messages/end_record.hpp"

namespace amldist::step {
namespace {

constexpr std::uint64_t most_id = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint64_t most_of_script = 255;

/// No task of such a step failed by itself.
bool was_ended_by_slurm(EndRecord::Cause cause) {
  using enum EndRecord::Cause;
  return cause == cancelled || cause == time_limit || cause == preempted || cause == node_down;
}

void read_step(const EndRecord& step, JobRecord& record) {
  if (!step.rank && was_ended_by_slurm(step.cause)) return;
  std::string sentence = step.rank && step.cause != EndRecord::Cause::hang ? step.evidence : step.sentence();
  if (!sentence.empty() && !record.first_failure)
    record.first_failure = JobRecord::FailedTask{step.shell_status(), std::move(sentence)};
}

void read_line(std::string_view line, JobRecord& record) {
  if (const auto step = EndRecord::parse(line)) return read_step(*step, record);
  const auto words = text::split(line, ' ');
  const auto status = words.size() > 1 ? text::to_number(words[1], most_of_script) : std::nullopt;
  if (!status) return;
  if (words[0] == "ended" && words.size() == 2) record.ended = static_cast<int>(*status);
}

}  // namespace

std::optional<JobRecord> JobRecord::parse(std::string_view text) {
  const auto lines = text::split(text, '\n');
  const auto words = text::split(lines.front(), ' ');
  const auto job = words.size() == 3 ? text::to_number(words[1], most_id) : std::nullopt;
  const auto restarts = words.size() == 3 ? text::to_number(words[2], most_id) : std::nullopt;
  if (words[0] != "job" || !job || !restarts) return std::nullopt;
  JobRecord record{static_cast<std::uint32_t>(*job), static_cast<std::uint32_t>(*restarts), {}, {}};
  for (const std::string_view line : lines) read_line(line, record);
  return record;
}

}  // namespace amldist::step
