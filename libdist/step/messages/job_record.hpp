// How a batch job of aml-run ended, in a file of its own, so that the job's output need not be searched.
//
//   job 17 0                                            the job and how often it was requeued before
//   {"schema":1,"step":"17.0","cause":"rank_exit",...}  how each step ended (end_record.hpp)
//   ended 1                                             the status of the batch script
//
// The batch script writes the first line, which replaces an earlier run's, and the last one when its step has ended; a
// script that is killed, or leaves before its step, writes none. srun's plugin adds the line about a step to the file
// that AMLDIST_JOB_RECORD names. `aml-run --wait` reads it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace amldist::step {

inline constexpr const char* job_record_variable = "AMLDIST_JOB_RECORD";
/// Most bytes that a reader takes.
inline constexpr std::size_t longest_job_record = 64 * std::size_t{1024};

struct JobRecord {
  struct FailedTask {
    int status = 0;        ///< as a shell reports it: the exit status, or 128 + signal
    std::string sentence;  ///< printable: "rank 2 (local 0) on node3: exit status 7, 3.1 s after the start"
  };

  std::uint32_t job = 0;
  std::uint32_t restarts = 0;
  std::optional<FailedTask> first_failure;
  std::optional<int> ended;

  /// nullopt if the first line is not a job's. Other lines that cannot be read are skipped: the job's user may write
  /// anything.
  [[nodiscard]] static std::optional<JobRecord> parse(std::string_view text);
};

}  // namespace amldist::step
