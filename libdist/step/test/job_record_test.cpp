// How a batch job ended, as its script and srun's plugin write it down.
#include "step/messages/job_record.hpp"

#include <gtest/gtest.h>

namespace amldist::step {
namespace {

TEST(JobRecord, SaysWhoFailedFirstAndHowTheScriptEnded) {
  const JobRecord::FailedTask failed{7, "rank 2 (local 0) on node3: exit status 7"};
  const auto record = JobRecord::parse("job 17 1\n" + JobRecord::line_of(failed) + "ended 143\n");
  ASSERT_TRUE(record);
  EXPECT_EQ(record->job, 17U);
  EXPECT_EQ(record->restarts, 1U);
  ASSERT_TRUE(record->first_failure);
  EXPECT_EQ(record->first_failure->status, 7);
  EXPECT_EQ(record->first_failure->sentence, failed.sentence);
  EXPECT_EQ(record->ended, 143);
}

TEST(JobRecord, TheFirstOfSeveralStepsCounts) {
  const auto record = JobRecord::parse("job 17 0\nfailed 7 rank 2\nfailed 9 rank 3\n");
  ASSERT_TRUE(record && record->first_failure);
  EXPECT_EQ(record->first_failure->status, 7);
  EXPECT_FALSE(record->ended);
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
      "job 17 0\nended\nended -1\nended 256\nended 99999999999999999999\nended 3 4\nfailed\nfailed 7\nfailed x y\n"
      "failed 256 z\nnonsense 3\n\n\nfailed 9 \x1b[31mred\r\t\n");
  ASSERT_TRUE(record);
  EXPECT_FALSE(record->ended);
  ASSERT_TRUE(record->first_failure);
  EXPECT_EQ(record->first_failure->sentence, "?[31mred??");
  const auto flood = JobRecord::parse("job 17 0\nfailed 9 " + std::string(100000, 'x'));
  ASSERT_TRUE(flood && flood->first_failure);
  EXPECT_EQ(flood->first_failure->sentence.size(), 1024U);
}

TEST(JobRecord, ALineIsOneLine) { EXPECT_EQ(JobRecord::line_of({1, "a\nended 0"}), "failed 1 a?ended 0\n"); }

}  // namespace
}  // namespace amldist::step
