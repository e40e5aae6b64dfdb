// What slurmstepd reads about the end of a task: the kernel's log, in which programs choose the names of processes, the
// text of /proc/PID/cgroup, and the files in which a program of the user's has left an exception.
#include <csignal>

#include "fuzz.hpp"
#include "step/cause/exception.hpp"
#include "step/cause/task_cause.hpp"
#include "step/messages/failure_report.hpp"

namespace amldist::fuzz::causes {
namespace {

void check_cause(const step::Cause& cause) {
  require(!cause.text.empty() && step::is_cause_text(cause.text), "a cause is a short printable text");
}

std::vector<step::KernelRecord> records_of(std::string_view input) {
  std::vector<step::KernelRecord> records;
  Input lines(input);
  while (!lines.ended() && records.size() < 512) {
    const std::string_view line = lines.line();
    auto record = step::KernelRecord::parse(line);
    records.push_back(record ? std::move(*record) : step::KernelRecord{0, std::string(line)});
  }
  return records;
}

}  // namespace

const std::string_view separator = "\n";

void try_input(std::string_view input) {
  constexpr std::size_t most_bytes = std::size_t{64} << 20;
  const auto exception = within(most_bytes, [input] { return step::parse_exception(input); });
  if (exception) {
    check_cause(*exception);
    require(exception->text.size() <= step::longest_exception, "an exception is at most so long");
  }
  const auto findings = step::UserFindings::parse(input);
  require(step::UserFindings::parse(findings.to_string()) == findings, "what is written is read");
  const auto group = step::MemoryGroup::parse(input);
  require(!group || group->path.size() <= step::longest_group, "a group's path fits its place");
  const auto records = records_of(input);
  step::TaskEnd end{.wait_status = SIGKILL, .pid = 7, .host = "node1", .log_was_read = true, .log = records};
  end.group = group.value_or(step::MemoryGroup{true, "/slurm/uid_0/job_1/step_0/task_0"});
  end.memory = step::MemoryUse{1, 1024, 1024, "step"};
  end.gpus = {"0000:3b:00.0"};
  end.user = findings;
  step::FailureReport report{.rank = 1, .wait_status = SIGKILL, .host = "node1"};
  report.causes = within(most_bytes, [&] { return step::find_causes(end); });
  for (const step::Cause& cause : report.causes) check_cause(cause);
  require(step::FailureReport::parse(report.to_datagram(1), 1) == report, "a report that is written is the same");
}

}  // namespace amldist::fuzz::causes
