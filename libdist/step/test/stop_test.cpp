// stop=: when a step is asked to stop, and the files by which its tasks learn of it.
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "step/messages/control_message.hpp"
#include "step/messages/stop_files.hpp"
#include "step/server/stop_timer.hpp"
#include "support.hpp"

namespace amldist::step::stop_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class StopTimerTest : public ::testing::Test {
 protected:
  const Clock::time_point start{seconds(1000)};
  StopTimer timer{seconds(60), start};
  [[nodiscard]] Clock::time_point at(int second) const { return start + seconds(second); }
};

TEST_F(StopTimerTest, IsDueSoLongBeforeTheLimitAndOnce) {
  EXPECT_TRUE(timer.wants_limit(start));
  EXPECT_FALSE(timer.until_stop(start));
  timer.take(seconds(100), start);
  EXPECT_EQ(timer.until_stop(start), seconds(40));
  EXPECT_EQ(timer.until_stop(at(39)), seconds(1));
  EXPECT_FALSE(timer.raise(at(39)));
  EXPECT_TRUE(timer.raise(at(40)));
  EXPECT_FALSE(timer.raise(at(41)));
  EXPECT_EQ(timer.until_stop(at(50)), milliseconds(0));
  EXPECT_FALSE(timer.wants_limit(at(500)));
  EXPECT_FALSE(timer.due());
}

TEST_F(StopTimerTest, AsksNowAndThenAndJustBeforeTheStop) {
  timer.take(seconds(70), start);  // the stop is at 10 s
  EXPECT_FALSE(timer.wants_limit(at(8)));
  EXPECT_EQ(timer.due(), at(9));
  EXPECT_TRUE(timer.wants_limit(at(9)));
  timer.take(seconds(61 + 600), at(9));  // the limit was extended
  EXPECT_FALSE(timer.raise(at(10)));
  EXPECT_EQ(timer.until_stop(at(10)), seconds(600));
  EXPECT_TRUE(timer.wants_limit(at(24)));
}

TEST_F(StopTimerTest, APreemptionBringsTheStopForward) {
  timer.take(seconds(3600), start);
  timer.take(seconds(30), at(15));
  EXPECT_EQ(timer.until_stop(at(15)), milliseconds(0));
  EXPECT_TRUE(timer.raise(at(15)));
}

TEST_F(StopTimerTest, WithoutALimitOrAnAnswerNothingIsDue) {
  timer.take(std::nullopt, start);
  EXPECT_FALSE(timer.until_stop(at(100)));
  EXPECT_FALSE(timer.raise(at(1000000)));
  EXPECT_TRUE(timer.wants_limit(at(15)));
  timer.take(seconds(100), at(15));
  timer.take_silence(at(30));
  EXPECT_EQ(timer.until_stop(at(30)), seconds(25));
  EXPECT_TRUE(timer.raise(at(55))) << "what slurmctld said last holds";
}

TEST(StopFiles, AppearAndGo) {
  const auto files = StopFiles::of_step("987654321.0");
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_FALSE(files->signal()) << "no such step runs";
  ASSERT_TRUE(files->raise());
  const auto later = std::chrono::system_clock::now() + std::chrono::seconds(1);
  ASSERT_TRUE(files->begin(SIGUSR1, later));
  EXPECT_EQ(files->signal(), SIGUSR1);
  EXPECT_NE(::access(files->stop.c_str(), F_OK), 0) << "an older step's must go";
  ASSERT_TRUE(files->raise());
  ASSERT_TRUE(files->raise());
  struct stat status = {};
  ASSERT_EQ(::stat(files->stop.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  files->remove();
  EXPECT_NE(::access(files->stop.c_str(), F_OK), 0);
  EXPECT_FALSE(files->signal());
}

/// As by a step that begins within the last seconds before its stop, and verifies its fabric first.
TEST(StopFiles, StayWhenTheyAppearBeforeTheFirstTask) {
  const auto files = StopFiles::of_step("987654321.2");
  ASSERT_TRUE(files);
  const auto before = std::chrono::system_clock::now() - std::chrono::seconds(1);
  ASSERT_TRUE(files->raise());
  ASSERT_TRUE(files->begin(0, before));
  EXPECT_EQ(::access(files->stop.c_str(), F_OK), 0) << "the ranks would not be asked to stop";
  files->remove();
}

TEST(StopFiles, FollowNoLink) {
  const auto files = StopFiles::of_step("987654321.1");
  ASSERT_TRUE(files);
  ASSERT_EQ(::symlink("/dev/shm/aml-dist-no-such-file", files->stop.c_str()), 0);
  EXPECT_FALSE(files->raise());
  EXPECT_NE(::access("/dev/shm/aml-dist-no-such-file", F_OK), 0);
  files->remove();
}

TEST(StopMessage, IsReadOnlyWithTheToken) {
  const std::string answer = to_datagram(Subject::stop_in, "58200", 7);
  EXPECT_EQ(parse_text(Subject::stop_in, answer, 7), "58200");
  EXPECT_FALSE(parse_text(Subject::stop_in, answer, 8));
  EXPECT_EQ(parse_message_type(to_datagram(MessageType::when_stop, 7), 7), MessageType::when_stop);
}

}  // namespace
}  // namespace amldist::step::stop_test
