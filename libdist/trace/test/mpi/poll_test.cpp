// Programs that ask again and again whether their requests have ended: which of them wait.
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <ctime>
#include <functional>
#include <optional>
#include <thread>
#include <vector>

#include "mpi_program.hpp"

namespace amldist::trace::mpi_test {
namespace {

/// Asks for so long whether it has ended, and does something between two tests.
void poll(const Mpi& mpi, int request, std::chrono::milliseconds length, const std::function<void()>& between) {
  const auto end = std::chrono::steady_clock::now() + length;
  while (std::chrono::steady_clock::now() < end) {
    int flag = 1;
    mpi.call<int*, int*, void*>("MPI_Test", &request, &flag, nullptr);
    if (flag != 0) ::_exit(1);
    between();
  }
}

void compute(std::chrono::microseconds length) {
  timespec now = {};
  const auto used = [&] {
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
  };
  const auto end = used() + length;
  while (used() < end) {
  }
}

constexpr std::chrono::milliseconds several_intervals{700};  // a fifth of a second each

/// What is recorded of a message that never comes, to whoever reads it at the end of the program.
CallRecord polled_call(const std::function<void()>& between, const std::function<void(const Mpi&)>& after = {}) {
  const Recording recording = recorded_by([&](const Mpi& mpi) {
    poll(mpi, receive(mpi, never_ends), several_intervals, between);
    if (after) after(mpi);
  });
  const auto found = std::ranges::find(recording.calls, calls::Operation::recv, &CallRecord::operation);
  return found != recording.calls.end() ? *found : CallRecord{};
}

TEST(MpiPolls, TakesAProgramThatOnlyAsksForOneThatWaits) {
  const CallRecord call = polled_call([] {});
  EXPECT_EQ(call.state, State::started);
  EXPECT_GT(call.started_ns, call.enqueued_ns);
  EXPECT_EQ(polled_call([] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }).state, State::started)
      << "it sleeps between two tests";
}

TEST(MpiPolls, TakesAProgramThatAsksNowAndThenForOneThatComputes) {
  EXPECT_EQ(polled_call([] { compute(std::chrono::microseconds(300)); }).state, State::enqueued);
  std::atomic<bool> stop = false;
  std::optional<std::thread> worker;
  const auto with_worker = [&] {
    if (!worker)
      worker.emplace([&] {
        while (!stop) {
        }
      });
  };
  const auto join = [&](const Mpi& /*mpi*/) {
    stop = true;
    worker->join();
  };
  EXPECT_EQ(polled_call(with_worker, join).state, State::enqueued) << "another thread computes";
}

/// While it lives, this process has one processor, with others that never rest.
class BusyNeighbours {
 public:
  BusyNeighbours() {
    ::sched_getaffinity(0, sizeof(before_), &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(::sched_getcpu(), &one);
    ::sched_setaffinity(0, sizeof(one), &one);
    for (int i = 0; i < 8; ++i) {
      const pid_t process = ::fork();
      if (process == 0) compute_until_killed();
      if (process > 0) processes_.push_back(process);
    }
  }
  ~BusyNeighbours() {
    for (const pid_t process : processes_) ::kill(process, SIGKILL);
    for (const pid_t process : processes_) ::waitpid(process, nullptr, 0);
    ::sched_setaffinity(0, sizeof(before_), &before_);
  }
  BusyNeighbours(const BusyNeighbours&) = delete;
  BusyNeighbours& operator=(const BusyNeighbours&) = delete;

 private:
  [[noreturn]] static void compute_until_killed() {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // also where the test is killed
    for (volatile unsigned turns = 0;;) turns = turns + 1;
  }

  cpu_set_t before_ = {};
  std::vector<pid_t> processes_;
};

TEST(MpiPolls, TakesAProgramThatComputesAndSleepsForOneThatComputesOnABusyMachine) {
  const BusyNeighbours neighbours;
  EXPECT_EQ(polled_call([] {
              compute(std::chrono::milliseconds(2));
              std::this_thread::sleep_for(std::chrono::microseconds(100));
            }).state,
            State::enqueued);
}

TEST(MpiPolls, TakesAProgramThatAsksAndMakesOtherCallsForOneThatGoesOn) {
  const Recording recording = recorded_by([](const Mpi& mpi) {
    poll(mpi, receive(mpi, never_ends), several_intervals, [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      allreduce(mpi);
    });
  });
  EXPECT_EQ(recording.calls[1].operation, calls::Operation::recv);
  EXPECT_EQ(recording.calls[1].state, State::enqueued);
}

TEST(MpiPolls, NoLongerWaitsOnceItAsksNoMore) {
  const auto rest = [](const Mpi& /*mpi*/) { std::this_thread::sleep_for(std::chrono::milliseconds(1300)); };
  const CallRecord call = polled_call([] {}, rest);
  EXPECT_EQ(call.state, State::enqueued);
  EXPECT_EQ(call.started_ns, 0);
  const CallRecord gone_on = polled_call([] {},
                                         [](const Mpi& mpi) {
                                           poll(mpi, receive(mpi, never_ends, 0), several_intervals,
                                                [] { compute(std::chrono::microseconds(300)); });
                                         });
  EXPECT_EQ(gone_on.state, State::enqueued);
}

TEST(MpiPolls, KnowsWhichOfThePolledRequestsHasNotEnded) {
  const auto three_polled = [](const Mpi& mpi) {
    std::array<int, 3> requests = {receive(mpi, 1), receive(mpi, never_ends), receive(mpi, 3)};
    const auto end = std::chrono::steady_clock::now() + several_intervals;
    while (std::chrono::steady_clock::now() < end) {
      int flag = 1;
      mpi.call<int, int*, int*, void*>("MPI_Testall", 3, requests.data(), &flag, nullptr);
      if (flag != 0) ::_exit(1);
    }
  };
  Recording recording = recorded_by(three_polled);
  // On a busy machine the program may have hardly run in the last interval, which says nothing then.
  constexpr int most = 5;
  const auto is_polled = [](const CallRecord& call) { return call.state == State::started; };
  for (int i = 1; i < most && std::ranges::none_of(recording.calls, is_polled); ++i)
    recording = recorded_by(three_polled);
  ASSERT_EQ(recording.calls.size(), 4U);
  EXPECT_EQ(recording.calls[1].state, State::enqueued);
  EXPECT_EQ(recording.calls[2].state, State::started);
  EXPECT_EQ(recording.calls[3].state, State::enqueued);
}

TEST(MpiPolls, RecordsAPolledCallOnceMoreWhereTheRingHasGoneRound) {
  const Recording recording = recorded_by([](const Mpi& mpi) {
    const int request = receive(mpi, never_ends);
    for (int i = 0; i < 5000; ++i) allreduce(mpi);
    poll(mpi, request, several_intervals, [] {});
  });
  ASSERT_FALSE(recording.calls.empty());
  EXPECT_EQ(recording.calls.back().operation, calls::Operation::recv);
  EXPECT_EQ(recording.calls.back().state, State::started);
  EXPECT_EQ(recording.recorded, 1U + 1 + 5000 + 1) << "and only once";
}

}  // namespace
}  // namespace amldist::trace::mpi_test
