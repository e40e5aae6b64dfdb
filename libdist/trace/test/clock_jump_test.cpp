// The time of day is set while a rank waits: its wait stays as long as it is.
#include <fcntl.h>
#include <gtest/gtest.h>

#include "base/time/calendar_time.hpp"
#include "jumping_clock.hpp"
#include "scratch.hpp"
#include "trace/record/flight_recorder.hpp"
#include "trace/record/record_reader.hpp"

namespace amldist::trace::clock_jump_test {

constexpr std::int64_t hour_s = 3600;
constexpr std::int64_t second_ns = 1'000'000'000;

class ClockThatJumps : public ::testing::TestWithParam<std::int64_t> {};

TEST_P(ClockThatJumps, ChangesNoWait) {
  const amldist::testing::ScratchFolder folder;
  RecorderOwner owner;
  owner.job = "1.0";
  auto recorder = FlightRecorder::create(folder.path(), owner);
  ASSERT_TRUE(recorder);
  static_cast<void>(
      recorder->begin({calls::Operation::allreduce, calls::DataType::float32, calls::ReduceOp::sum, 0, 1, 4096, -1}));
  const std::int64_t before = calendar_ns();
  const amldist::testing::ClockJump jump(GetParam());
  ASSERT_GT(std::abs(calendar_ns() - before), hour_s / 2 * second_ns) << "the clock of this test jumps";
  for (const bool is_later : {false, true}) {
    if (is_later) recorder->tick();
    const auto recording = read_recording(AT_FDCWD, recorder->path());
    ASSERT_TRUE(recording && recording->calls.size() == 1);
    const std::int64_t waits_ns = recording->present_ns() - recording->calls.front().begin_ns();
    EXPECT_GE(waits_ns, 0);
    EXPECT_LT(waits_ns, 30 * second_ns) << (is_later ? "after a heartbeat" : "before one");
    EXPECT_LT(std::abs(recording->latest_ns - before), 30 * second_ns) << "the calendar of the writer goes on";
  }
}

INSTANTIATE_TEST_SUITE_P(Reader, ClockThatJumps, ::testing::Values(hour_s, -hour_s));

}  // namespace amldist::trace::clock_jump_test
