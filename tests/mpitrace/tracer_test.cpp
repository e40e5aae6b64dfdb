// Plays an MPI program of two ranks: loads the part that records and makes calls, from many threads.
//
// One process per test, because a process has one recorder; each ends before MPI_Finalize would remove its file.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "recorder/record_reader.hpp"
#include "scratch.hpp"

namespace {

using amldist::collective::CallRecord;
using amldist::collective::Operation;
using amldist::collective::Recording;
using amldist::collective::recorder_format::State;
using amldist::testing::ScratchFolder;

constexpr int world = 0x44000000;
constexpr int float32 = 0x4c00040a;
constexpr int sum = 0x58000003;

/// MPI as the program sees it.
class Mpi {
 public:
  Mpi() : part_(::dlopen(PART, RTLD_NOW | RTLD_LOCAL)), fake_(::dlopen(FAKE_MPI, RTLD_NOW | RTLD_LOCAL)) {}
  [[nodiscard]] int use() const { return function<int(void*)>("amldist_mpitrace_use")(fake_); }
  template <typename... Arguments>
  int call(const char* name, Arguments... arguments) const {
    return function<int(Arguments...)>(name)(arguments...);
  }
  /// A call that is not recorded, because MPI itself tells what it ends.
  void free_communicator(int comm) const { reinterpret_cast<int (*)(int*)>(::dlsym(fake_, "PMPI_Comm_free"))(&comm); }

 private:
  template <typename Function>
  [[nodiscard]] Function* function(const char* name) const {
    return reinterpret_cast<Function*>(::dlsym(part_, name));
  }
  void* part_;
  void* fake_;
};

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t pages = 0;
  file >> pages >> pages;
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

/// Runs the program in a process of its own and reads what it recorded.
Recording recorded_by(const std::function<void(const Mpi&)>& program) {
  const ScratchFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("AMLDIST_TRACE", "42.0", 1);
    ::setenv("AMLDIST_TRACE_DIR", folder.path().c_str(), 1);
    ::setenv("SLURM_PROCID", "0", 1);
    ::setenv("SLURM_STEP_NUM_TASKS", "2", 1);
    const Mpi mpi;
    if (mpi.use() != 1) ::_exit(1);
    mpi.call<int*, char***>("MPI_Init", nullptr, nullptr);
    program(mpi);
    ::_exit(0);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  auto recording = amldist::collective::read_recording(AT_FDCWD, folder.path() + "/42.0/0.mpi.trace");
  EXPECT_TRUE(recording) << (recording ? "" : recording.error().message);
  return recording ? std::move(*recording) : Recording{};
}

std::vector<CallRecord> calls_on(const Recording& recording, std::string_view communicator) {
  std::vector<CallRecord> found;
  for (const CallRecord& call : recording.calls) {
    const auto* const of = recording.communicator(call.communicator);
    if (of != nullptr && of->name == communicator) found.push_back(call);
  }
  return found;
}

int allreduce(const Mpi& mpi, int comm = world, int count = 4) {
  float in = 0;
  float out = 0;
  return mpi.call<const void*, void*, int, int, int, int>("MPI_Allreduce", &in, &out, count, float32, sum, comm);
}

TEST(MpiTrace, RecordsACallWithItsNumberTypeAndSize) {
  const Recording recording = recorded_by([](const Mpi& mpi) { allreduce(mpi); });
  const auto calls = calls_on(recording, "world");
  ASSERT_EQ(calls.size(), 2U) << "MPI_Init and the call";
  EXPECT_EQ(calls[1].operation, Operation::allreduce);
  EXPECT_EQ(calls[1].sequence, 2U);
  EXPECT_EQ(calls[1].bytes, 16U);
  EXPECT_EQ(calls[1].state, State::completed);
}

TEST(MpiTrace, CountsEachCommunicatorForItself) {
  const Recording recording = recorded_by([](const Mpi& mpi) {
    int twin = 0;
    mpi.call<int, int*>("MPI_Comm_dup", world, &twin);
    for (int i = 0; i < 3; ++i) allreduce(mpi, twin);
    allreduce(mpi);
  });
  EXPECT_EQ(calls_on(recording, "ranks 0,1").back().sequence, 3U);
  EXPECT_EQ(calls_on(recording, "world").back().sequence, 3U);
}

TEST(MpiTrace, CountsTheStartsOfAPersistentCollectiveForThemselves) {
  const Recording recording = recorded_by([](const Mpi& mpi) {
    float in = 0;
    float out = 0;
    int request = 0;
    mpi.call<const void*, void*, int, int, int, int, int, int*>("MPI_Allreduce_init", &in, &out, 4, float32, sum, world,
                                                                0, &request);
    for (int i = 0; i < 2; ++i) {
      mpi.call<int*>("MPI_Start", &request);
      mpi.call<int*, void*>("MPI_Wait", &request, nullptr);
    }
    mpi.call<int, int*>("MPI_Startall", 1, &request);
  });
  EXPECT_EQ(calls_on(recording, "world").back().operation, amldist::collective::recorder_format::other::prepare);
  const auto starts = calls_on(recording, "persistent allreduce #2 of ranks 0,1");
  ASSERT_EQ(starts.size(), 3U);
  EXPECT_EQ(starts[1].state, State::completed);
  EXPECT_EQ(starts[2].state, State::enqueued);
  EXPECT_EQ(starts[2].sequence, 3U);
}

TEST(MpiTrace, RecordsNoMoreThanItsRingAndItsSlotsHold) {
  constexpr int many = 10'000;
  const Recording recording = recorded_by([](const Mpi& mpi) {
    float in = 0;
    float out = 0;
    for (int i = 0; i < many; ++i) {
      int request = 0;
      mpi.call<const void*, void*, int, int, int, int, int, int*>("MPI_Allreduce_init", &in, &out, 4, float32, sum,
                                                                  world, 0, &request);
      mpi.call<int*>("MPI_Start", &request);
      if (i % 2 == 0) mpi.call<int*>("MPI_Request_free", &request);
    }
    allreduce(mpi);
  });
  EXPECT_EQ(recording.recorded, 2U * many + 2);
  const auto open =
      std::ranges::count(recording.communicators, false, &amldist::collective::CommunicatorRecord::closed);
  EXPECT_LE(open, 1 + 128) << "the program's own communicators need the other slots";
  EXPECT_EQ(calls_on(recording, "world").back().sequence, many + 2U);
}

TEST(MpiTrace, KeepsMemoryAndFileBoundedOverTenThousandCommunicators) {
  constexpr int many = 10'000;
  constexpr std::uint64_t most_growth = std::uint64_t{8} << 20;
  constexpr std::uint64_t largest_file = std::uint64_t{1} << 20;
  const Recording recording = recorded_by([](const Mpi& mpi) {
    const auto use = [&] {
      int made = 0;
      mpi.call<int, int*>("MPI_Comm_dup", world, &made);
      allreduce(mpi, made);
      return made;
    };
    mpi.free_communicator(use());
    const std::uint64_t before = resident_bytes();
    for (int i = 1; i < many; ++i) mpi.free_communicator(use());
    for (int i = 0; i < many; ++i) use();  // which stay open
    EXPECT_TRUE(resident_bytes() < before + most_growth);
    struct stat file = {};
    EXPECT_EQ(::stat((std::string(std::getenv("AMLDIST_TRACE_DIR")) + "/42.0/0.mpi.trace").c_str(), &file), 0);
    EXPECT_TRUE(static_cast<std::uint64_t>(file.st_size) <= largest_file) << file.st_size;
    if (::testing::Test::HasFailure()) ::_exit(1);
  });
  EXPECT_EQ(recording.recorded, 4U * many + 1) << "each is made and used; and MPI_Init";
  EXPECT_LE(recording.communicators.size(), 256U);
}

TEST(MpiTrace, MakesCallsWithLargeCountsSmallWhereMpiHasNone) {
  const Recording recording = recorded_by([](const Mpi& mpi) {
    std::array<int, 5> seen{};
    const std::array<long long, 2> counts = {3, 4};
    const std::array<std::intptr_t, 2> displacements = {0, 30};
    const auto gather = [&](long long sent) {
      return mpi.call<const void*, long long, int, void*, const long long*, const std::intptr_t*, int, int>(
          "MPI_Allgatherv_c", nullptr, sent, float32, seen.data(), counts.data(), displacements.data(), float32, world);
    };
    EXPECT_EQ(gather(3), 0);
    EXPECT_EQ(seen, (std::array<int, 5>{3, 3, 4, 0, 30}));
    EXPECT_NE(gather(1LL << 33), 0) << "as large as it is, it cannot be made small";
    if (::testing::Test::HasFailure()) ::_exit(1);
  });
  const auto calls = calls_on(recording, "world");
  ASSERT_EQ(calls.size(), 2U) << "MPI_Init, and one of the two";
  EXPECT_EQ(calls[1].operation, Operation::allgatherv);
}

TEST(MpiTrace, GivesAnErrorForACallThatMpiDoesNotHave) {
  recorded_by([](const Mpi& mpi) {
    float in = 0;
    float out = 0;
    EXPECT_NE((mpi.call<const void*, void*, int, int, int, int>("MPI_Scan", &in, &out, 1, float32, sum, world)), 0);
    if (::testing::Test::HasFailure()) ::_exit(1);
  });
}

TEST(MpiTrace, RecordsABurstOfCallsWhereThereAreNoThreads) {
  constexpr int many = 20'000;  // more than have exact times in one tick of the kernel's clock
  ::setenv("FAKE_MPI_THREADS", "1", 1);
  const Recording recording = recorded_by([](const Mpi& mpi) {
    for (int i = 0; i < many; ++i) allreduce(mpi);
  });
  ::unsetenv("FAKE_MPI_THREADS");
  EXPECT_EQ(recording.recorded, many + 1U);
  std::int64_t before = 0;
  for (const CallRecord& call : recording.calls) {
    EXPECT_EQ(call.state, State::completed);
    EXPECT_EQ(call.sequence, call.ticket) << "each has a number of its own";
    EXPECT_LE(before, call.enqueued_ns);
    EXPECT_EQ(call.enqueued_ns, call.started_ns);
    EXPECT_LE(call.started_ns, call.ended_ns);
    before = call.enqueued_ns;
  }
}

TEST(MpiTrace, SurvivesThreadsThatCallAtTheSameTime) {
  constexpr int threads = 4;
  constexpr int each = 1000;  // fewer than the ring holds: else a wait for a call that has left it is recorded, too
  const Recording recording = recorded_by([](const Mpi& mpi) {
    std::vector<std::thread> all;
    all.reserve(threads);
    for (int i = 0; i < threads; ++i) {
      all.emplace_back([&mpi] {
        for (int call = 0; call < each; ++call) {
          float in = 0;
          float out = 0;
          int request = 0;
          mpi.call<const void*, void*, int, int, int, int, int*>("MPI_Iallreduce", &in, &out, 1, float32, sum, world,
                                                                 &request);
          mpi.call<int*, void*>("MPI_Wait", &request, nullptr);
        }
      });
    }
    for (std::thread& thread : all) thread.join();
  });
  EXPECT_EQ(recording.recorded, 1U + threads * each);
}

TEST(MpiTrace, RecordsACallThatFails) {
  const Recording recording = recorded_by([](const Mpi& mpi) {
    float out = 0;
    EXPECT_EQ((mpi.call<void*, int, int, int, int, int, void*>("MPI_Recv", &out, 1, float32, 1, 5, world, nullptr)),
              15);
  });
  ASSERT_FALSE(recording.calls.empty());
  EXPECT_EQ(recording.calls.back().operation, Operation::recv);
  EXPECT_EQ(recording.calls.back().state, State::failed);
}

int receive(const Mpi& mpi, int tag, int source = 1) {
  static float in = 0;
  int request = 0;
  mpi.call<void*, int, int, int, int, int, int*>("MPI_Irecv", &in, 1, float32, source, tag, world, &request);
  return request;
}

TEST(MpiTrace, KnowsTheEndsOfCallsThatShareARequest) {
  const Recording recording = recorded_by([](const Mpi& mpi) {
    float out = 0;
    std::array<int, 2> requests = {};
    for (int& each : requests)
      mpi.call<const void*, int, int, int, int, int, int*>("MPI_Isend", &out, 1, float32, 1, 5, world, &each);
    EXPECT_EQ(requests[0], requests[1]) << "as of calls that end at once";
    mpi.call<int, int*, void*>("MPI_Waitall", 2, requests.data(), reinterpret_cast<void*>(1));
  });
  ASSERT_EQ(recording.calls.size(), 3U);
  EXPECT_EQ(recording.calls[1].state, State::completed);
  EXPECT_EQ(recording.calls[2].state, State::completed);
}

constexpr int fails = 1001;
constexpr int never_ends = 1002;

TEST(MpiTrace, KnowsWhichOfManyRequestsHasNotEnded) {
  const Recording recording = recorded_by([](const Mpi& mpi) {
    std::array<int, 3> requests = {receive(mpi, 1), receive(mpi, never_ends), receive(mpi, 3)};
    mpi.call<int, int*, void*>("MPI_Waitall", 3, requests.data(), reinterpret_cast<void*>(1));
  });
  ASSERT_EQ(recording.calls.size(), 4U);
  EXPECT_EQ(recording.calls[1].state, State::completed);
  EXPECT_EQ(recording.calls[2].state, State::started) << "it waits in this one";
  EXPECT_EQ(recording.calls[3].state, State::enqueued);
}

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
  const auto found = std::ranges::find(recording.calls, Operation::recv, &CallRecord::operation);
  return found != recording.calls.end() ? *found : CallRecord{};
}

TEST(MpiTrace, TakesAProgramThatOnlyAsksForOneThatWaits) {
  const CallRecord call = polled_call([] {});
  EXPECT_EQ(call.state, State::started);
  EXPECT_GT(call.started_ns, call.enqueued_ns);
  EXPECT_EQ(polled_call([] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }).state, State::started)
      << "it sleeps between two tests";
}

TEST(MpiTrace, TakesAProgramThatAsksNowAndThenForOneThatComputes) {
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

TEST(MpiTrace, TakesAProgramThatAsksAndMakesOtherCallsForOneThatGoesOn) {
  const Recording recording = recorded_by([](const Mpi& mpi) {
    poll(mpi, receive(mpi, never_ends), several_intervals, [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      allreduce(mpi);
    });
  });
  EXPECT_EQ(recording.calls[1].operation, Operation::recv);
  EXPECT_EQ(recording.calls[1].state, State::enqueued);
}

TEST(MpiTrace, NoLongerWaitsOnceItAsksNoMore) {
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

TEST(MpiTrace, KnowsWhichOfThePolledRequestsHasNotEnded) {
  const Recording recording = recorded_by([](const Mpi& mpi) {
    std::array<int, 3> requests = {receive(mpi, 1), receive(mpi, never_ends), receive(mpi, 3)};
    const auto end = std::chrono::steady_clock::now() + several_intervals;
    while (std::chrono::steady_clock::now() < end) {
      int flag = 1;
      mpi.call<int, int*, int*, void*>("MPI_Testall", 3, requests.data(), &flag, nullptr);
      if (flag != 0) ::_exit(1);
    }
  });
  ASSERT_EQ(recording.calls.size(), 4U);
  EXPECT_EQ(recording.calls[1].state, State::enqueued);
  EXPECT_EQ(recording.calls[2].state, State::started);
  EXPECT_EQ(recording.calls[3].state, State::enqueued);
}

TEST(MpiTrace, RecordsAPolledCallOnceMoreWhereTheRingHasGoneRound) {
  const Recording recording = recorded_by([](const Mpi& mpi) {
    const int request = receive(mpi, never_ends);
    for (int i = 0; i < 5000; ++i) allreduce(mpi);
    poll(mpi, request, several_intervals, [] {});
  });
  ASSERT_FALSE(recording.calls.empty());
  EXPECT_EQ(recording.calls.back().operation, Operation::recv);
  EXPECT_EQ(recording.calls.back().state, State::started);
  EXPECT_EQ(recording.recorded, 1U + 1 + 5000 + 1) << "and only once";
}

TEST(MpiTrace, TellsTheErrorOfEachRequestAsMpiDoes) {
  const Recording recording = recorded_by([](const Mpi& mpi) {
    struct Status {
      std::array<int, 4> rest = {7, 7, 7, 7};
      int error = 7;
    };
    std::array<Status, 3> statuses;
    std::array<int, 3> requests = {receive(mpi, 1), receive(mpi, fails), receive(mpi, 3)};
    const int status = mpi.call<int, int*, void*>("MPI_Waitall", 3, requests.data(), statuses.data());
    const bool right = status == 17 && statuses[0].error == 0 && statuses[1].error == 15 && statuses[2].error == 18;
    if (!right || statuses[2].rest[3] != 7) ::_exit(1);
  });
  ASSERT_EQ(recording.calls.size(), 4U);
  EXPECT_EQ(recording.calls[1].state, State::completed);
  EXPECT_EQ(recording.calls[2].state, State::failed);
  EXPECT_EQ(recording.calls[3].state, State::enqueued);
}

/// Of a call that sends to rank 1 and receives from it, one half of which never ends.
void expect_half_of(bool is_sending, const std::function<void(const Mpi&, int send_tag, int receive_tag)>& exchange) {
  const Recording recording =
      recorded_by([&](const Mpi& mpi) { exchange(mpi, is_sending ? never_ends : 1, is_sending ? 1 : never_ends); });
  ASSERT_EQ(recording.calls.size(), 3U);
  EXPECT_EQ(recording.calls[1].operation, Operation::recv);
  EXPECT_EQ(recording.calls[1].state, is_sending ? State::enqueued : State::started);
  EXPECT_EQ(recording.calls[2].operation, Operation::send);
  EXPECT_EQ(recording.calls[2].state, is_sending ? State::started : State::completed);
  EXPECT_EQ(recording.calls[2].bytes, 4U);
}

TEST(MpiTrace, KnowsWhichHalfOfAnExchangeHasNotEnded) {
  for (const bool is_sending : {true, false}) {
    expect_half_of(is_sending, [](const Mpi& mpi, int send_tag, int receive_tag) {
      float out = 0;
      float in = 0;
      mpi.call<const void*, int, int, int, int, void*, int, int, int, int, int, void*>(
          "MPI_Sendrecv", &out, 1, float32, 1, send_tag, &in, 1, float32, 1, receive_tag, world,
          reinterpret_cast<void*>(1));
    });
    expect_half_of(is_sending, [](const Mpi& mpi, int send_tag, int receive_tag) {
      float both = 0;
      mpi.call<void*, int, int, int, int, int, int, int, void*>("MPI_Sendrecv_replace", &both, 1, float32, 1, send_tag,
                                                                1, receive_tag, world, reinterpret_cast<void*>(1));
    });
    expect_half_of(is_sending, [](const Mpi& mpi, int send_tag, int receive_tag) {
      float both = 0;
      mpi.call<void*, long long, int, int, int, int, int, int, void*>(
          "MPI_Sendrecv_replace_c", &both, 1, float32, 1, send_tag, 1, receive_tag, world, reinterpret_cast<void*>(1));
    });
  }
}

TEST(MpiTrace, RecordsAWaitForWhatWasPostedLongAgo) {
  const Recording recording = recorded_by([](const Mpi& mpi) {
    int request = receive(mpi, never_ends);
    for (int i = 0; i < 5000; ++i) allreduce(mpi);
    mpi.call<int*, void*>("MPI_Wait", &request, nullptr);
  });
  ASSERT_FALSE(recording.calls.empty());
  EXPECT_EQ(recording.calls.back().operation, Operation::recv);
  EXPECT_EQ(recording.calls.back().peer, 1);
  EXPECT_EQ(recording.calls.back().state, State::started);
}

TEST(MpiTrace, TellsLargeTagsApart) {
  const Recording recording = recorded_by([](const Mpi& mpi) {
    for (const int tag : {5, 5 + 32768, 5 + 65536, 5}) receive(mpi, tag);
  });
  ASSERT_EQ(recording.calls.size(), 5U);
  EXPECT_EQ(recording.calls[1].tag, 5);
  EXPECT_NE(recording.calls[2].tag, 5);
  EXPECT_NE(recording.calls[3].tag, recording.calls[2].tag);
  EXPECT_EQ(recording.calls[4].tag, 5);
}

TEST(MpiTrace, KnowsACommunicatorThatIsMadeLaterWhateverARankUsesFirst) {
  const auto id_of_first = [](bool is_used_first) {
    const Recording recording = recorded_by([is_used_first](const Mpi& mpi) {
      std::array<int, 2> made = {};
      for (int& each : made) {
        int request = 0;
        mpi.call<int, int*, int*>("MPI_Comm_idup", world, &each, &request);
        mpi.call<int*, void*>("MPI_Wait", &request, nullptr);
      }
      allreduce(mpi, made[is_used_first ? 0 : 1], 1);
      allreduce(mpi, made[is_used_first ? 1 : 0], 1);
    });
    const std::size_t which = recording.calls.size() - (is_used_first ? 2 : 1);
    const auto* const found = recording.communicator(recording.calls.at(which).communicator);
    return found != nullptr ? found->id : 0;
  };
  EXPECT_NE(id_of_first(true), 0U);
  EXPECT_EQ(id_of_first(true), id_of_first(false));
}

TEST(MpiTrace, CountsTheCallsOnAFileForThemselves) {
  void* file = nullptr;
  for (const bool closes : {false, true}) {
    const Recording recording = recorded_by([&](const Mpi& mpi) {
      const float out = 0;
      mpi.call<int, const char*, int, int, void**>("MPI_File_open", world, "model", 0, 0, &file);
      for (int i = 0; i < 2; ++i) {
        mpi.call<void*, const void*, int, int, void*>("MPI_File_write_all", file, &out, 1, float32, nullptr);
        allreduce(mpi);
      }
      if (closes) mpi.call<void**>("MPI_File_close", &file);
    });
    const auto calls = calls_on(recording, "file of ranks 0,1");
    ASSERT_EQ(calls.size(), closes ? 3U : 2U);
    EXPECT_EQ(calls[1].operation, amldist::collective::recorder_format::other::file_io);
    EXPECT_EQ(calls[1].sequence, 2U);
    EXPECT_EQ(calls[1].bytes, 4U);
    EXPECT_EQ(calls_on(recording, "world").back().sequence, 4U) << "MPI_Init, the opening and two calls";
    EXPECT_EQ(recording.communicator(calls[0].communicator)->closed, closes);
  }
}

TEST(MpiTrace, RecordsTheCallOfAGroup) {
  const Recording recording = recorded_by([](const Mpi& mpi) {
    int made = 0;
    mpi.call<int, int, int, int*>("MPI_Comm_create_group", world, 1, 9, &made);
    allreduce(mpi, made);
  });
  const auto calls = calls_on(recording, "group of ranks 0,1");
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_EQ(calls[0].operation, amldist::collective::recorder_format::other::create);
  EXPECT_EQ(calls[0].sequence, 1U);
  EXPECT_EQ(calls_on(recording, "ranks 0,1").size(), 1U);
  EXPECT_EQ(calls_on(recording, "world").size(), 1U) << "the world's other members do not call it";
}

TEST(MpiTrace, RecordsCallsBetweenTwoGroupsAsThoseOfAllTheirRanks) {
  const Recording recording = recorded_by([](const Mpi& mpi) {
    int between = 0;
    float out = 0;
    mpi.call<int, int, int, int, int, int*>("MPI_Intercomm_create", world, 0, world, 1, 7, &between);
    mpi.call<int>("MPI_Barrier", between);
    mpi.call<void*, int, int, int, int>("MPI_Bcast", &out, 1, float32, -3, between);
    mpi.call<const void*, int, int, int, int, int>("MPI_Send", &out, 1, float32, 0, 5, between);
    int twin = 0;
    mpi.call<int, int*>("MPI_Comm_dup", between, &twin);
    mpi.call<int>("MPI_Barrier", twin);
  });
  const auto calls = calls_on(recording, "between ranks 0,1");
  ASSERT_EQ(calls.size(), 5U);
  EXPECT_EQ(calls[1].operation, Operation::broadcast);
  EXPECT_EQ(calls[1].sequence, 2U);
  EXPECT_EQ(calls[1].peer, -1) << "each group has its own root";
  EXPECT_EQ(calls[1].bytes, 0U);
  EXPECT_EQ(calls[2].peer, 1) << "rank 0 of the other group";
  const auto* const first = recording.communicator(calls[0].communicator);
  const auto* const twin = recording.communicator(calls[4].communicator);
  EXPECT_EQ(first->size, 2U);
  EXPECT_EQ(first->world_ranks.to_list(), (std::vector<std::uint32_t>{0, 1}));
  EXPECT_NE(first->id, twin->id);
  EXPECT_EQ(calls_on(recording, "world").back().operation, amldist::collective::recorder_format::other::create);
}

TEST(MpiTrace, RecordsCallsWithSpawnedProcessesButLetsNobodyBeJudgedByThem) {
  const Recording recording = recorded_by([](const Mpi& mpi) {
    int spawned = 0;
    float out = 0;
    mpi.call<const char*, char**, int, int, int, int, int*, int*>("MPI_Comm_spawn", "worker", nullptr, 1, 0, 0, world,
                                                                  &spawned, nullptr);
    mpi.call<int>("MPI_Barrier", spawned);
    mpi.call<const void*, int, int, int, int, int>("MPI_Send", &out, 1, float32, 0, never_ends, spawned);
  });
  EXPECT_EQ(recording.communicators.size(), 1U);
  ASSERT_NE(recording.unjudged_wait(), nullptr);
  EXPECT_EQ(recording.unjudged_wait()->operation, Operation::send);
}

TEST(MpiTrace, LeavesTheFileToTheParentAfterAFork) {
  const Recording recording = recorded_by([](const Mpi& mpi) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    int status = 0;
    ::waitpid(child, &status, 0);
    allreduce(mpi);
  });
  EXPECT_EQ(recording.recorded, 2U);
}

}  // namespace
