// What is recorded of a program's MPI calls.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "mpi_program.hpp"
#include "trace/diagnosis/call_words.hpp"
#include "trace/diagnosis/given_up.hpp"

namespace amldist::trace::mpi_test {
namespace {

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t pages = 0;
  file >> pages >> pages;
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

TEST(MpiTrace, RecordsACallWithItsNumberTypeAndSize) {
  const Recording recording = recorded_by([](const Mpi& mpi) { allreduce(mpi); });
  const auto calls = calls_on(recording, "world");
  ASSERT_EQ(calls.size(), 2U) << "MPI_Init and the call";
  EXPECT_EQ(calls[1].operation, calls::Operation::allreduce);
  EXPECT_EQ(calls[1].sequence, 2U);
  EXPECT_EQ(calls[1].bytes, 16U);
  EXPECT_EQ(calls[1].state, State::completed);
}

TEST(MpiTrace, RecordsWhereACallWasMade) {
  const Recording recording = recorded_by([](const Mpi& mpi) { allreduce(mpi); });
  const auto calls = calls_on(recording, "world");
  ASSERT_EQ(calls.size(), 2U);
  const auto own = reinterpret_cast<std::uintptr_t>(&resident_bytes);  // of this program; the process was its copy
  constexpr std::uintptr_t most = 16U << 20;
  EXPECT_LT(calls[1].site > own ? calls[1].site - own : own - calls[1].site, most) << std::hex << calls[1].site;
}

TEST(MpiTrace, RecordsAWaitInAWindowAsOneForNobodyKnown) {
  const Recording recording = recorded_by([](const Mpi& mpi) { mpi.call<int, int>("MPI_Win_flush", 1, 5); });
  ASSERT_FALSE(recording.calls.empty());
  const CallRecord& call = recording.calls.back();
  EXPECT_EQ(name_of(call), "MPI_Win_flush");
  EXPECT_EQ(call.state, State::completed);
  EXPECT_EQ(recording.communicator(call.communicator), nullptr);
  EXPECT_NE(call.site, 0U);
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
  EXPECT_EQ(calls_on(recording, "world").back().operation, amldist::trace::recorder_format::other::prepare);
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
  const auto open = std::ranges::count(recording.communicators, false, &amldist::trace::CommunicatorRecord::closed);
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

/// What another thread does while this one is in MPI. A program of a test runs in a process of its own.
struct OtherThread {
  static inline const Mpi* mpi = nullptr;
  static inline int handle = 0;

  static void uses_the_communicator() {
    std::thread([] { allreduce(*mpi, handle); }).join();
  }
  static void posts() {
    std::thread([] {
      float out = 0;
      mpi->call<const void*, int, int, int, int, int, int*>("MPI_Isend", &out, 1, float32, 1, 6, world, &handle);
    }).join();
  }
};

/// MPI would delete the attribute that the other thread has set meanwhile.
TEST(MpiTrace, TwoThreadsMayUseACommunicatorForTheFirstTimeAtOnce) {
  const Recording recording = recorded_by([](const Mpi& mpi) {
    ::alarm(20);
    OtherThread::mpi = &mpi;
    OtherThread::handle = mpi.make_communicator();
    mpi.at("fake_mpi_no_attribute", OtherThread::uses_the_communicator);
    allreduce(mpi, OtherThread::handle);
  });
  EXPECT_EQ(recording.communicators.size(), 2U);
  ASSERT_EQ(recording.calls.size(), 3U);
  EXPECT_EQ(recording.calls.back().sequence, 2U);
}

/// As MPI reuses the handle of a call that has ended before this thread has returned from its wait.
TEST(MpiTrace, AnotherThreadsCallMayHaveTheHandleOfOneThatHasJustEnded) {
  const Recording recording = recorded_by([](const Mpi& mpi) {
    OtherThread::mpi = &mpi;
    float out = 0;
    int request = 0;
    mpi.call<const void*, int, int, int, int, int, int*>("MPI_Isend", &out, 1, float32, 1, 5, world, &request);
    mpi.at("fake_mpi_wait_ended", OtherThread::posts);
    const int first = request;
    mpi.call<int*, void*>("MPI_Wait", &request, nullptr);
    EXPECT_EQ(OtherThread::handle, first);
    mpi.call<int*, void*>("MPI_Wait", &OtherThread::handle, nullptr);
  });
  ASSERT_EQ(recording.calls.size(), 3U);
  EXPECT_EQ(recording.calls[1].state, State::completed);
  EXPECT_EQ(recording.calls[2].state, State::completed);
}

TEST(MpiTrace, RecordsACallThatFails) {
  const Recording recording = recorded_by([](const Mpi& mpi) {
    float out = 0;
    EXPECT_EQ((mpi.call<void*, int, int, int, int, int, void*>("MPI_Recv", &out, 1, float32, 1, 5, world, nullptr)),
              15);
  });
  ASSERT_FALSE(recording.calls.empty());
  EXPECT_EQ(recording.calls.back().operation, calls::Operation::recv);
  EXPECT_EQ(recording.calls.back().state, State::failed);
}

TEST(MpiTrace, KeepsTheRecordOfAFailedCallBeyondFinalize) {
  const Recording recording = recorded_by([](const Mpi& mpi) {
    float data = 0;
    EXPECT_NE((mpi.call<void*, int, int, int, int>("MPI_Bcast", &data, fails, float32, 0, world)), 0);
    mpi.call("MPI_Finalize");
  });
  EXPECT_EQ(recording.ending, amldist::trace::recorder_format::Ending::failed);
  ASSERT_NE(given_up_in(recording), nullptr);
  EXPECT_EQ(given_up_in(recording)->operation, calls::Operation::broadcast);
  EXPECT_EQ(given_up_in(recording)->status, amldist::trace::recorder_format::too_long);
}

/// What the program waits for or tests, of which receives have failed.
struct FailedWait {
  const char* name;
  std::function<int(const Mpi&)> call;
  std::vector<State> states;  ///< of its receives
};

void PrintTo(const FailedWait& wait, std::ostream* out) { *out << wait.name; }

class FailedWaits : public ::testing::TestWithParam<FailedWait> {};

TEST_P(FailedWaits, FailTheReceivesThatMpiNames) {
  const Recording recording = recorded_by([](const Mpi& mpi) {
    if (GetParam().call(mpi) == 0) ::_exit(1);
    mpi.call("MPI_Finalize");
  });
  EXPECT_EQ(recording.ending, amldist::trace::recorder_format::Ending::failed);
  std::vector<State> states;
  for (const auto& each : recording.calls)
    if (each.operation == calls::Operation::recv) states.push_back(each.state);
  EXPECT_EQ(states, GetParam().states);
}

using Statuses = std::array<std::array<int, 5>, 3>;
std::vector<FailedWait> failed_waits() {
  return {
      {"Wait",
       [](const Mpi& mpi) {
         int request = receive(mpi, fails);
         return mpi.call<int*, void*>("MPI_Wait", &request, nullptr);
       },
       {State::failed}},
      {"WaitallOfOne",
       [](const Mpi& mpi) {
         Statuses statuses{};
         int request = receive(mpi, fails);
         return mpi.call<int, int*, void*>("MPI_Waitall", 1, &request, statuses.data());
       },
       {State::failed}},
      {"Waitany",
       [](const Mpi& mpi) {
         int index = -1;
         std::array<int, 2> requests = {receive(mpi, 1), receive(mpi, fails)};
         return mpi.call<int, int*, int*, void*>("MPI_Waitany", 2, requests.data(), &index, nullptr);
       },
       {State::enqueued, State::failed}},
      {"Waitsome",
       [](const Mpi& mpi) {
         Statuses statuses{};
         int ended = 0;
         std::array<int, 3> indices{};
         std::array<int, 3> requests = {receive(mpi, 1), receive(mpi, 2), receive(mpi, fails)};
         return mpi.call<int, int*, int*, int*, void*>("MPI_Waitsome", 3, requests.data(), &ended, indices.data(),
                                                       statuses.data());
       },
       {State::enqueued, State::completed, State::failed}},
  };
}
INSTANTIATE_TEST_SUITE_P(Calls, FailedWaits, ::testing::ValuesIn(failed_waits()));

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
  EXPECT_EQ(recording.calls[1].operation, calls::Operation::recv);
  EXPECT_EQ(recording.calls[1].state, is_sending ? State::enqueued : State::started);
  EXPECT_EQ(recording.calls[2].operation, calls::Operation::send);
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
  EXPECT_EQ(recording.calls.back().operation, calls::Operation::recv);
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
    EXPECT_EQ(calls[1].operation, amldist::trace::recorder_format::other::file_io);
    EXPECT_EQ(name_of(calls[1]), "MPI_File_write_all");
    EXPECT_EQ(name_of(calls.back()), closes ? "MPI_File_close" : "MPI_File_write_all");
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
  EXPECT_EQ(calls[0].operation, amldist::trace::recorder_format::other::create);
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
  const auto calls_of_twin = calls_on(recording, "between ranks 0,1 (2)");
  ASSERT_EQ(calls.size(), 4U);
  ASSERT_EQ(calls_of_twin.size(), 1U);
  EXPECT_EQ(calls[1].operation, calls::Operation::broadcast);
  EXPECT_EQ(calls[1].sequence, 2U);
  EXPECT_EQ(calls[1].peer, -1) << "each group has its own root";
  EXPECT_EQ(calls[1].bytes, 0U);
  EXPECT_EQ(calls[2].peer, 1) << "rank 0 of the other group";
  const auto* const first = recording.communicator(calls[0].communicator);
  const auto* const twin = recording.communicator(calls_of_twin[0].communicator);
  EXPECT_EQ(first->size, 2U);
  EXPECT_EQ(first->world_ranks.to_list(), (std::vector<std::uint32_t>{0, 1}));
  EXPECT_NE(first->id, twin->id);
  EXPECT_EQ(calls_on(recording, "world").back().operation, amldist::trace::recorder_format::other::create);
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
  EXPECT_EQ(recording.unjudged_wait()->operation, calls::Operation::send);
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
}  // namespace amldist::trace::mpi_test
