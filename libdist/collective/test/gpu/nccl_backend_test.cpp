// The NCCL back end over a fake NCCL: what it asks of it, that it computes the right thing with and without the
// functions of newer releases, and that nothing hangs.
#include "collective/gpu/nccl_backend.hpp"

#include <dlfcn.h>

#include <barrier>
#include <numeric>

#include "fake_cuda.hpp"
#include "fake_nccl.hpp"
#include "ranks.hpp"
#include "support.hpp"

namespace amldist::collective {
namespace {

using namespace std::chrono_literals;
using amldist::testing::DeadlineWatchdog;
using amldist::testing::expect_sentence;
using amldist::testing::fake_cuda_driver;
using amldist::testing::FakeCuda;
using amldist::testing::FakeNccl;
using amldist::testing::FakeStream;
using amldist::testing::MeetingRoom;
using amldist::testing::on_ranks;
using amldist::testing::ThreadExchange;

constexpr int ranks = 3;
constexpr std::size_t count = 5;

FakeNccl& control_of(const char* library) {
  void* const handle = ::dlopen(library, RTLD_NOW);
  auto* const get = reinterpret_cast<FakeNccl* (*)()>(::dlsym(handle, "fake_nccl"));
  return *get();
}

/// Tests run over the newest release and over the oldest.
class Nccl : public ::testing::TestWithParam<const char*> {
 protected:
  Nccl() : control_(control_of(GetParam())) {
    control_.fail_init = control_.async_error = control_.call_result = control_.busy_answers = 0;
    control_.init_hangs = false;
    control_.aborted = control_.destroyed = 0;
    control_.calls.clear();
  }
  ~Nccl() override {
    EXPECT_EQ(control_.alive, 0) << "a communicator was left behind";
    EXPECT_EQ(control_.allocated, 0);
    EXPECT_EQ(control_.registered, 0);
    EXPECT_EQ(FakeCuda::instance().retained, 0);
  }

  Result<std::unique_ptr<NcclBackend>> join(MeetingRoom& room, int rank, Clock::duration patience = 10s) {
    ThreadExchange exchange(room, rank);
    return NcclBackend::create(load_nccl(GetParam()), driver_, 0, exchange, Clock::now() + patience);
  }

  /// Runs `body` on every rank of a fresh communicator.
  void on_communicator(const std::function<void(NcclBackend&, int rank)>& body, int size = ranks) {
    MeetingRoom room(size);
    on_ranks(size, [&](int rank) {
      auto backend = join(room, rank);
      ASSERT_TRUE(backend) << backend.error().message;
      body(**backend, rank);
      EXPECT_EQ(FakeCuda::depth(), 0);
    });
  }

  int calls(const char* name) {
    const std::scoped_lock lock(control_.mutex);
    return control_.calls[name];
  }

  FakeNccl& control_;
  CudaDriver driver_ = fake_cuda_driver();
};

std::vector<float> numbers(int rank, std::size_t length) {
  std::vector<float> values(length);
  std::iota(values.begin(), values.end(), static_cast<float>(100 * rank));
  return values;
}

float sum_at(std::size_t i, int size = ranks) {
  float sum = 0;
  for (int rank = 0; rank < size; ++rank) sum += static_cast<float>(100 * rank) + static_cast<float>(i);
  return sum;
}

calls::Call call_of(calls::Operation operation, const void* send, void* recv, FakeStream& stream, int root = 0) {
  calls::Call call;
  call.operation = operation;
  call.type = calls::DataType::float32;
  call.root = root;
  call.count = count;
  call.send = send;
  call.recv = recv;
  call.stream = &stream;
  return call;
}

void finish(NcclBackend& backend, const calls::Call& call) {
  DeadlineWatchdog watchdog(10s);
  const auto done = backend.run(call, watchdog);
  ASSERT_TRUE(done) << done.error().message;
  const auto complete = backend.synchronize(call.stream, watchdog);
  ASSERT_TRUE(complete) << complete.error().message;
}

TEST_P(Nccl, Reduces) {
  on_communicator([&](NcclBackend& backend, int rank) {
    FakeStream stream;
    const auto send = numbers(rank, count * ranks);
    std::vector<float> all(count), one(count, -1), piece(count);
    finish(backend, call_of(calls::Operation::allreduce, send.data(), all.data(), stream));
    finish(backend, call_of(calls::Operation::reduce, send.data(), one.data(), stream, 1));
    finish(backend, call_of(calls::Operation::reduce_scatter, send.data(), piece.data(), stream));
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(all[i], sum_at(i));
      EXPECT_EQ(one[i], rank == 1 ? sum_at(i) : -1);
      EXPECT_EQ(piece[i], sum_at(static_cast<std::size_t>(rank) * count + i));
    }
  });
}

TEST_P(Nccl, MovesPieces) {
  on_communicator([&](NcclBackend& backend, int rank) {
    FakeStream stream;
    const auto whole = numbers(rank, count * ranks);
    std::vector<float> gathered(count * ranks), all(count * ranks), scattered(count), exchanged(count * ranks);
    std::vector<float> shared = numbers(rank, count);
    finish(backend, call_of(calls::Operation::allgather, whole.data(), all.data(), stream));
    finish(backend, call_of(calls::Operation::gather, whole.data(), gathered.data(), stream, 2));
    finish(backend, call_of(calls::Operation::scatter, whole.data(), scattered.data(), stream, 1));
    finish(backend, call_of(calls::Operation::alltoall, whole.data(), exchanged.data(), stream));
    finish(backend, call_of(calls::Operation::broadcast, shared.data(), shared.data(), stream, 1));
    const auto own = static_cast<std::size_t>(rank) * count;
    for (std::size_t i = 0; i < count; ++i) {
      EXPECT_EQ(shared[i], numbers(1, count)[i]);
      EXPECT_EQ(scattered[i], numbers(1, count * ranks)[own + i]);
      for (int from = 0; from < ranks; ++from) {
        const std::size_t at = static_cast<std::size_t>(from) * count + i;
        EXPECT_EQ(all[at], numbers(from, count)[i]);
        EXPECT_EQ(gathered[at], rank == 2 ? numbers(from, count)[i] : 0);
        EXPECT_EQ(exchanged[at], numbers(from, count * ranks)[own + i]);
      }
    }
  });
  const bool old = std::string_view(GetParam()) == FAKE_NCCL_2_19;
  EXPECT_EQ(calls("AlltoAll"), old ? 0 : ranks) << "grouped sends only where NCCL has no function of its own";
  EXPECT_EQ(calls("Send") > 0, old);
}

TEST_P(Nccl, MovesPiecesOfUnequalLength) {
  on_communicator([&](NcclBackend& backend, int rank) {
    FakeStream stream;
    const std::vector<std::size_t> counts = {2, 0, 3}, offsets = {0, 2, 2};
    std::vector<float> all(5, -1);
    const auto send = numbers(rank, 5);
    calls::Call call = call_of(calls::Operation::allgatherv, send.data(), all.data(), stream);
    call.count = counts[static_cast<std::size_t>(rank)];
    const calls::CallLists gathered = {{}, {}, counts, offsets};
    call.lists = &gathered;
    finish(backend, call);
    EXPECT_EQ(all, (std::vector<float>{0, 1, 200, 201, 202}));

    // Rank r sends r + 1 elements to everybody.
    const auto own = static_cast<std::size_t>(rank) + 1;
    const std::vector<std::size_t> send_counts(ranks, own), send_offsets(ranks, 1), recv_counts = {1, 2, 3},
                                                                                    recv_offsets = {0, 1, 3};
    std::vector<float> exchanged(6, -1);
    call = call_of(calls::Operation::alltoallv, send.data(), exchanged.data(), stream);
    const calls::CallLists crossing = {send_counts, send_offsets, recv_counts, recv_offsets};
    call.lists = &crossing;
    finish(backend, call);
    EXPECT_EQ(exchanged, (std::vector<float>{1, 101, 102, 201, 202, 203}));
  });
}

TEST_P(Nccl, MovesSmallIntegersAsBytesAndRefusesToAddThem) {
  on_communicator([&](NcclBackend& backend, int rank) {
    FakeStream stream;
    const std::vector<std::int16_t> send(count, static_cast<std::int16_t>(-1 - rank));
    std::vector<std::int16_t> all(count * ranks);
    calls::Call call = call_of(calls::Operation::allgather, send.data(), all.data(), stream);
    call.type = calls::DataType::int16;
    finish(backend, call);
    for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i], -1 - static_cast<int>(i / count));
    call.operation = calls::Operation::allreduce;
    DeadlineWatchdog watchdog(10s);
    const auto refused = backend.run(call, watchdog);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Errc::unavailable);
    expect_sentence(refused.error().message);
  });
  EXPECT_EQ(control_.aborted, 0) << "a refusal leaves the communicator whole";
}

TEST_P(Nccl, CrossesMessagesInAGroup) {
  on_communicator([&](NcclBackend& backend, int rank) {
    FakeStream stream;
    const int right = (rank + 1) % ranks;
    const int left = (rank + ranks - 1) % ranks;
    const auto send = numbers(rank, count);
    std::vector<float> recv(count);
    const std::vector<calls::Call> messages = {call_of(calls::Operation::send, send.data(), nullptr, stream, right),
                                               call_of(calls::Operation::recv, nullptr, recv.data(), stream, left)};
    DeadlineWatchdog watchdog(10s);
    ASSERT_TRUE(backend.run_group(messages, watchdog));
    ASSERT_TRUE(backend.synchronize(&stream, watchdog));
    EXPECT_EQ(recv, numbers(left, count));
  });
  EXPECT_EQ(calls("GroupStart"), calls("GroupEnd"));
}

TEST_P(Nccl, WaitsForCallsThatAreInProgress) {
  control_.busy_answers = 300;
  on_communicator([&](NcclBackend& backend, int rank) {
    FakeStream stream;
    const auto send = numbers(rank, count);
    std::vector<float> all(count);
    finish(backend, call_of(calls::Operation::allreduce, send.data(), all.data(), stream));
    EXPECT_EQ(all[0], sum_at(0));
  });
}

TEST_P(Nccl, MeetsAtABarrier) {
  std::atomic<int> arrived = 0;
  on_communicator([&](NcclBackend& backend, int) {
    FakeStream stream;
    ++arrived;
    finish(backend, call_of(calls::Operation::barrier, nullptr, nullptr, stream));
    EXPECT_EQ(arrived, ranks);
  });
}

TEST_P(Nccl, GivesMemoryThatIsRegistered) {
  on_communicator([&](NcclBackend& backend, int) {
    auto memory = backend.allocate(4096);
    auto kept = backend.allocate(64);
    ASSERT_TRUE(memory && kept);
    EXPECT_GE(control_.registered, 1);
    EXPECT_TRUE(backend.release(*memory));
    EXPECT_FALSE(backend.release(*memory)) << "the second time";
    EXPECT_FALSE(backend.release(&memory));
  });
}

TEST_P(Nccl, Splits) {
  std::barrier all_split(4);
  on_communicator(
      [&](NcclBackend& backend, int rank) {
        DeadlineWatchdog watchdog(10s);
        auto half = backend.split(rank % 2, rank / 2, rank / 2, 2, watchdog);
        ASSERT_TRUE(half) << half.error().message;
        all_split.arrive_and_wait();
        FakeStream stream;
        const auto send = numbers(rank, count);
        std::vector<float> sum(count);
        finish(**half, call_of(calls::Operation::allreduce, send.data(), sum.data(), stream));
        EXPECT_EQ(sum[0], rank % 2 == 0 ? 200.F : 400.F);
        const auto none = backend.split(-1, 0, 0, 0, watchdog);
        ASSERT_TRUE(none);
        EXPECT_EQ(*none, nullptr);
      },
      4);
}

TEST_P(Nccl, GivesUpAtTheDeadlineWhenARankNeverCalls) {
  on_communicator([&](NcclBackend& backend, int rank) {
    if (rank == 1) return;
    FakeStream stream;
    const auto send = numbers(rank, count);
    std::vector<float> all(count);
    DeadlineWatchdog watchdog(50ms);
    ASSERT_TRUE(backend.run(call_of(calls::Operation::allreduce, send.data(), all.data(), stream), watchdog));
    const auto waited = backend.synchronize(&stream, watchdog);
    ASSERT_FALSE(waited);
    EXPECT_EQ(waited.error().code, Errc::timeout);
    EXPECT_EQ(stream.pending, 0) << "the abort released the kernel";
    const auto later = backend.run(call_of(calls::Operation::allreduce, send.data(), all.data(), stream), watchdog);
    ASSERT_FALSE(later);
    EXPECT_EQ(later.error().code, Errc::aborted);
  });
  EXPECT_EQ(control_.aborted, 2);
}

TEST_P(Nccl, ReportsAsynchronousErrorsAndAborts) {
  on_communicator([&](NcclBackend& backend, int) {
    control_.async_error = nccl_remote_error;
    FakeStream stream;
    DeadlineWatchdog watchdog(10s);
    const auto state = backend.is_complete(&stream);
    ASSERT_FALSE(state);
    EXPECT_EQ(state.error().code, Errc::peer);
    expect_sentence(state.error().message);
  });
  EXPECT_EQ(control_.aborted, ranks);
}

TEST_P(Nccl, ReportsAStreamThatHasFailed) {
  on_communicator(
      [&](NcclBackend& backend, int) {
        FakeStream stream;
        FakeCuda::instance().stream_fails = 700;
        const auto state = backend.is_complete(&stream);
        ASSERT_FALSE(state);
        expect_sentence(state.error().message);
      },
      1);
  FakeCuda::instance().stream_fails = 0;
}

TEST_P(Nccl, ReportsACallThatIsRefused) {
  on_communicator(
      [&](NcclBackend& backend, int rank) {
        control_.call_result = 4;
        FakeStream stream;
        const auto send = numbers(rank, count * ranks);
        std::vector<float> all(count * ranks);
        DeadlineWatchdog watchdog(10s);
        const std::vector<std::size_t> counts = {count}, offsets = {0};
        calls::Call call = call_of(calls::Operation::allgatherv, send.data(), all.data(), stream);
        const calls::CallLists lists = {{}, {}, counts, offsets};
        call.lists = &lists;
        const auto refused = backend.run(call, watchdog);
        EXPECT_FALSE(refused);
      },
      1);
  control_.call_result = 0;
  EXPECT_EQ(calls("GroupStart"), calls("GroupEnd")) << "a group is closed also after an error";
}

TEST_P(Nccl, IsAbortedFromAnotherThreadWhileItWaits) {
  on_communicator([&](NcclBackend& backend, int rank) {
    if (rank == 0) return;
    FakeStream stream;
    const auto send = numbers(rank, count);
    std::vector<float> all(count);
    DeadlineWatchdog watchdog(30s);
    ASSERT_TRUE(backend.run(call_of(calls::Operation::allreduce, send.data(), all.data(), stream), watchdog));
    std::thread other([&] {
      std::this_thread::sleep_for(20ms);
      backend.abort();
    });
    const auto released = backend.synchronize(&stream, watchdog);
    other.join();
    ASSERT_FALSE(released);
    EXPECT_EQ(released.error().code, Errc::aborted);
    EXPECT_LT(Clock::now(), watchdog.deadline());
  });
}

TEST_P(Nccl, IsAbortedWhileACallIsInProgress) {
  control_.busy_answers = 1 << 30;
  on_communicator([&](NcclBackend& backend, int rank) {
    FakeStream stream;
    const auto send = numbers(rank, count);
    std::vector<float> all(count);
    DeadlineWatchdog watchdog(30s);
    std::thread other([&] {
      std::this_thread::sleep_for(20ms);
      backend.abort();
    });
    const auto released = backend.run(call_of(calls::Operation::allreduce, send.data(), all.data(), stream), watchdog);
    other.join();
    ASSERT_FALSE(released);
    EXPECT_EQ(released.error().code, Errc::aborted);
  });
  EXPECT_EQ(control_.aborted, ranks);
}

TEST_P(Nccl, EndsAtTheDeadlineWhenNcclHangsInInit) {
  control_.init_hangs = true;
  MeetingRoom room(2);
  on_ranks(2, [&](int rank) {
    const auto backend = join(room, rank, 100ms);
    ASSERT_FALSE(backend);
    EXPECT_EQ(backend.error().code, Errc::timeout);
    expect_sentence(backend.error().message);
  });
  EXPECT_EQ(control_.aborted, 2);
}

TEST_P(Nccl, NamesTheRankThatNeverCame) {
  MeetingRoom room(3);
  on_ranks(2, [&](int rank) {
    const auto backend = join(room, rank, 100ms);
    ASSERT_FALSE(backend);
    EXPECT_NE(backend.error().message.find("rank 2"), std::string::npos);
  });
}

TEST_P(Nccl, FailsAlikeOnAllRanksWhenOneHasNoNccl) {
  MeetingRoom room(3);
  on_ranks(3, [&](int rank) {
    ThreadExchange exchange(room, rank);
    const auto backend = NcclBackend::create(load_nccl(rank == 1 ? "/nonexistent/libnccl.so" : GetParam()), driver_, 0,
                                             exchange, Clock::now() + 10s);
    ASSERT_FALSE(backend);
    EXPECT_NE(backend.error().message.find("rank 1: "), std::string::npos) << backend.error().message;
    EXPECT_NE(backend.error().message.find("AMLDIST_NCCL"), std::string::npos);
  });
  EXPECT_EQ(control_.alive, 0);
}

TEST_P(Nccl, RefusesRanksWithDifferentReleases) {
  MeetingRoom room(2);
  on_ranks(2, [&](int rank) {
    ThreadExchange exchange(room, rank);
    const auto backend = NcclBackend::create(load_nccl(rank == 1 ? FAKE_NCCL_2_19 : FAKE_NCCL_2_28), driver_, 0,
                                             exchange, Clock::now() + 10s);
    ASSERT_FALSE(backend);
    EXPECT_EQ(backend.error().code, Errc::mismatch);
    EXPECT_NE(backend.error().message.find("2.19.3"), std::string::npos);
    EXPECT_NE(backend.error().message.find("2.28.9"), std::string::npos);
  });
}

TEST_P(Nccl, SaysWhatNcclSaysWhenItCannotStart) {
  control_.fail_init = 1;
  MeetingRoom room(2);
  on_ranks(2, [&](int rank) {
    const auto backend = join(room, rank);
    ASSERT_FALSE(backend);
    EXPECT_NE(backend.error().message.find("fake error"), std::string::npos);
    expect_sentence(backend.error().message);
  });
}

std::string release_name(const ::testing::TestParamInfo<const char*>& release) {
  return std::string_view(release.param) == FAKE_NCCL_2_19 ? "Oldest" : "Newest";
}
INSTANTIATE_TEST_SUITE_P(Releases, Nccl, ::testing::Values(FAKE_NCCL_2_28, FAKE_NCCL_2_19), release_name);

}  // namespace
}  // namespace amldist::collective
