// Which of a node's tasks asks srun whether they may start.
#include "spank/stepd/start_gate.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <future>

namespace amldist::spank {
namespace {

/// Nobody answers there.
const step::SrunLink srun{*IpAddress::parse("127.0.0.1"), {9, {0x00c0ffee00c0ffee, 0x5ca1ab1e5ca1ab1e}}};

/// The task that asked may have ended, and this one may have got its number.
TEST(StartGate, ATaskDoesNotWaitForItself) {
  const StartGate gate = StartGate::make();
  gate.asking.store(::getpid());
  auto waits = std::async(std::launch::async, [&] { return gate.wait(srun, "node1", true).ok(); });
  constexpr std::chrono::seconds much_longer_than_an_answer(15);
  const bool has_asked = waits.wait_for(much_longer_than_an_answer) == std::future_status::ready;
  gate.state.store(StartGate::State::refused);  // ends the wait of one that does not ask
  EXPECT_TRUE(has_asked);
  EXPECT_FALSE(waits.get());
}

TEST(StartGate, ATaskTakesThePlaceOfOneThatHasEnded) {
  const StartGate gate = StartGate::make();
  const pid_t ended = ::fork();
  if (ended == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(ended, nullptr, 0), ended);
  gate.asking.store(ended);
  EXPECT_FALSE(gate.wait(srun, "node1", true).ok());
  EXPECT_EQ(gate.asking.load(), ::getpid());
}

TEST(SharedAtomic, IsReplacedByTheFirstThatKnowsItsValue) {
  const auto place = SharedAtomic<pid_t>::make();
  EXPECT_TRUE(place.replace(0, 12));
  EXPECT_FALSE(place.replace(0, 13));
  EXPECT_EQ(place.load(), 12);
  EXPECT_TRUE(place.replace(12, 13));
}

}  // namespace
}  // namespace amldist::spank
