// How a batch job ended, as its script and srun's plugin write it down.
#include "step/messages/job_record.hpp"

#include <gtest/gtest.h>

#include "step/messages/end_record.hpp"

namespace amldist::step {
namespace {

std::string line_of(EndRecord::Cause cause, std::uint32_t status, const std::string& evidence) {
  return EndRecord{.step = "17.0", .cause = cause, .rank = 2, .status = status, .evidence = evidence}.to_line();
}

TEST(JobRecord, SaysWhoFailedFirstAndHowTheScriptEnded) {
  const auto record =
      JobRecord::parse("job 17 1\n" + line_of(EndRecord::Cause::done, 0, "") +
                       line_of(EndRecord::Cause::rank_exit, 7, "rank 2 (local 0) on node3: exit status 7") +
                       line_of(EndRecord::Cause::rank_exit, 9, "rank 3") + "ended 143\n");
  ASSERT_TRUE(record);
  EXPECT_EQ(record->job, 17U);
  EXPECT_EQ(record->restarts, 1U);
  ASSERT_TRUE(record->first_failure);
  EXPECT_EQ(record->first_failure->status, 7) << "the first of several steps";
  EXPECT_EQ(record->first_failure->sentence, "rank 2 (local 0) on node3: exit status 7");
  EXPECT_EQ(record->ended, 143);
}

TEST(JobRecord, WhatIsNoneIsNotRead) {
  for (const char* const text :
       {"", "\n", "job", "job 17", "job 17 0 0\n", "job x 0\n", "job -1 0\n", "ended 0\n", "job 4294967296 0\n",
        "aml-dist: first failure: rank 0: exit status 3\n", " job 17 0\n"}) {
    EXPECT_FALSE(JobRecord::parse(text)) << text;
  }
}

TEST(JobRecord, HostileLinesArePassedOver) {
  const auto record = JobRecord::parse(
      "job 17 0\nended\nended -1\nended 256\nended 99999999999999999999\nended 3 4\nfailed 7 x\nnonsense 3\n\n\n{\n" +
      std::string(100000, '{'));
  ASSERT_TRUE(record);
  EXPECT_FALSE(record->ended);
  EXPECT_FALSE(record->first_failure);
}

}  // namespace
}  // namespace amldist::step
