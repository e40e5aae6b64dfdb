// Plays NCCL: loads the profiler plugin and makes the callbacks that each version of NCCL makes, from many threads.
//
// What is recorded is read in a child's place: one process per test, because NCCL has one profiler per process.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>
#include <vector>

#include "scratch.hpp"
#include "trace/diagnosis/hang_diagnosis.hpp"
#include "trace/record/flight_recorder.hpp"
#include "trace/record/record_reader.hpp"

namespace {

using amldist::calls::Operation;
using amldist::testing::ScratchFolder;
using amldist::trace::Recording;

struct Table {
  const char* name;
  void* init;
  int (*start)(void* context, void** event, void* descriptor);
  int (*stop)(void* event);
  int (*record)(void* event, int state, void* arguments);
  int (*finalize)(void* context);
};

// The descriptors as NCCL fills them (profiler_v*.h in NVIDIA/nccl); unions are as large as their largest member.
struct Descriptor {
  alignas(8) std::array<unsigned char, 512> bytes{};

  template <typename Value>
  void put(std::size_t offset, Value value) {
    std::memcpy(bytes.data() + offset, &value, sizeof value);
  }
};

constexpr std::size_t parent_at = 8;
constexpr std::size_t rank_at = 16;
constexpr std::size_t body_at = 24;

/// An all-reduce of 1024 floats.
Descriptor allreduce(int version, std::uint64_t comm, int rank, const char* function = "AllReduce") {
  Descriptor made;
  made.bytes.fill(0xee);  // what is not said is anything
  if (version >= 5) made.put(0, std::uint64_t{1 << 9});
  else made.put(0, std::uint8_t{2});
  made.put<void*>(parent_at, nullptr);
  made.put(rank_at, rank);
  std::size_t at = body_at;
  const auto next = [&](auto value) {
    at = (at + alignof(decltype(value)) - 1) / alignof(decltype(value)) * alignof(decltype(value));
    made.put(at, value);
    at += sizeof value;
  };
  if (version <= 3) {
    next(static_cast<const char*>("group"));
    next(comm);
  }
  if (version <= 4) next(std::uint64_t{7});  // NCCL's own number, of the function
  if (version == 1) next(std::uint8_t{4});
  else next(function);
  if (version <= 4) {
    next(static_cast<const void*>(nullptr));
    next(static_cast<void*>(nullptr));
  }
  next(std::size_t{1024});
  if (version <= 4) {
    next(0);
    if (version == 1) next(std::uint8_t{7});
    else next(static_cast<const char*>("ncclFloat32"));
  } else {
    next(static_cast<const char*>("ncclFloat32"));
    next(0);
  }
  return made;
}

/// NCCL's logger, which writes nothing unless NCCL_DEBUG asks for it.
void log_nothing(int /*level*/, unsigned long /*flags*/, const char* /*file*/, int /*line*/, const char* /*format*/,
                 ...) {}

class Nccl {
 public:
  explicit Nccl(int version) : version_(version) {
    library_ = ::dlopen(PROFILER, RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) std::fprintf(stderr, "%s\n", ::dlerror());
    const std::string name = "ncclProfiler_v" + std::to_string(version);
    table_ = library_ != nullptr ? static_cast<Table*>(::dlsym(library_, name.c_str())) : nullptr;
  }
  [[nodiscard]] bool works() const { return table_ != nullptr; }

  void* init(std::uint64_t comm, int ranks, int rank, int* mask) const {
    void* context = nullptr;
    if (version_ <= 3) {
      reinterpret_cast<int (*)(void**, int*)>(table_->init)(&context, mask);
    } else if (version_ == 4) {
      reinterpret_cast<int (*)(void**, int*, const char*, std::uint64_t, int, int, int, void*)>(table_->init)(
          &context, mask, "group", comm, 1, ranks, rank, reinterpret_cast<void*>(&log_nothing));
    } else {
      reinterpret_cast<int (*)(void**, std::uint64_t, int*, const char*, int, int, int, void*)>(table_->init)(
          &context, comm, mask, "group", 1, ranks, rank, reinterpret_cast<void*>(&log_nothing));
    }
    return context;
  }
  [[nodiscard]] int version() const { return version_; }
  [[nodiscard]] const Table& table() const { return *table_; }
  void unload() const { ::dlclose(library_); }

  void call(void* context, std::uint64_t comm, int rank, const char* function = "AllReduce") const {
    void* event = nullptr;
    Descriptor descriptor = allreduce(version_, comm, rank, function);
    table_->start(context, &event, descriptor.bytes.data());
    table_->record(event, 19, nullptr);
    table_->stop(event);
  }

 private:
  int version_;
  void* library_;
  Table* table_;
};

/// Runs `body` as rank `rank` of two in a process of its own, which ends without a word, as a killed one does.
void as_rank(int rank, const ScratchFolder& folder, const std::function<bool()>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::setenv("AMLDIST_TRACE", "42.0", 1);
    ::setenv("AMLDIST_TRACE_DIR", folder.path().c_str(), 1);
    ::setenv("RANK", std::to_string(rank).c_str(), 1);
    ::setenv("WORLD_SIZE", "2", 1);
    ::_exit(body() ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
}

Recording recorded(const ScratchFolder& folder, int rank) {
  auto read = amldist::trace::read_recording(AT_FDCWD, folder / ("42.0/" + std::to_string(rank) + ".nccl.trace"));
  EXPECT_TRUE(read) << (read ? "" : read.error().message);
  return read ? std::move(*read) : Recording{};
}

class NcclProfiler : public ::testing::TestWithParam<int> {};

TEST_P(NcclProfiler, RecordsCallsAndNamesTheOneThatIsBehind) {
  const ScratchFolder folder;
  for (const int rank : {0, 1}) {
    as_rank(rank, folder, [&] {
      const Nccl nccl(GetParam());
      int mask = 0;
      void* const context = nccl.works() ? nccl.init(77, 2, rank, &mask) : nullptr;
      if (mask == 0) return false;
      for (int i = 0; i < 5 - rank; ++i) nccl.call(context, 77, rank);
      return true;
    });
  }
  std::vector<Recording> step = {recorded(folder, 0), recorded(folder, 1)};
  ASSERT_EQ(step[0].communicators.size(), 1U);
  EXPECT_EQ(step[0].communicators[0].id, 77U);
  EXPECT_EQ(step[0].communicators[0].name, "group");
  EXPECT_EQ(step[0].communicators[0].entered, 5U);
  ASSERT_EQ(step[0].calls.size(), 5U);
  EXPECT_EQ(step[0].calls[0].operation, Operation::allreduce);
  EXPECT_EQ(step[0].calls[0].bytes, 4096U);
  EXPECT_FALSE(step[0].calls[3].pending()) << "the host has gone on";
  EXPECT_TRUE(step[0].calls[4].pending()) << "nobody knows that it has ended";
  for (Recording& each : step) each.writer = amldist::trace::Writer::runs;
  const auto verdict = amldist::trace::diagnose_hang(step);
  ASSERT_TRUE(verdict);
  EXPECT_TRUE(amldist::trace::sentence(*verdict, 9)
                  .starts_with("allreduce #5 (1024 float32, 4 KiB) of group 'group': rank 1 has not called it for 9 s"))
      << amldist::trace::sentence(*verdict, 9);
}

TEST_P(NcclProfiler, TakesCallbacksInAnyOrderFromManyThreads) {
  const ScratchFolder folder;
  as_rank(0, folder, [] {
    const Nccl nccl(GetParam());
    if (!nccl.works()) return false;
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 8; ++t) {
      threads.emplace_back([&nccl, t] {
        for (std::uint64_t round = 0; round < 40; ++round) {
          const std::uint64_t comm = 1000 * t + round;
          int mask = 0;
          void* const context = nccl.init(comm, 2, 0, &mask);
          for (int i = 0; i < 20; ++i) nccl.call(context, comm, 0, i % 3 == 0 ? "Whatever" : "AllGather");
          void* event = nullptr;
          Descriptor strange = allreduce(nccl.version(), comm, 0);
          strange.put(0, std::uint8_t{64});  // a kernel's channel, for which nobody has asked
          nccl.table().start(context, &event, strange.bytes.data());
          nccl.table().stop(event);
          nccl.table().start(nullptr, &event, strange.bytes.data());
          nccl.table().stop(nullptr);
          nccl.table().record(nullptr, 3, nullptr);
          if (round % 2 == 0) nccl.table().finalize(context);  // else as after ncclCommAbort
          nccl.table().finalize(nullptr);
        }
      });
    }
    for (std::thread& each : threads) each.join();
    nccl.unload();
    return true;
  });
  const Recording recording = recorded(folder, 0);
  EXPECT_EQ(recording.recorded, 8U * 40U * 20U);
  EXPECT_LE(recording.communicators.size(), 256U);
}

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t pages = 0;
  file >> pages >> pages;
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

TEST_P(NcclProfiler, KeepsMemoryAndFileBoundedOverTenThousandCommunicators) {
  constexpr std::uint64_t many = 10'000;
  constexpr std::uint64_t most_growth = std::uint64_t{8} << 20;
  const ScratchFolder folder;
  as_rank(0, folder, [] {
    const Nccl nccl(GetParam());
    if (!nccl.works()) return false;
    int mask = 0;
    const auto use = [&](std::uint64_t comm) {
      void* const context = nccl.init(comm, 2, 0, &mask);
      nccl.call(context, comm, 0);
      return context;
    };
    nccl.table().finalize(use(1));
    const std::uint64_t before = resident_bytes();
    for (std::uint64_t comm = 2; comm <= many; ++comm) nccl.table().finalize(use(comm));
    std::vector<void*> open;
    for (std::uint64_t comm = many + 1; comm <= 2 * many; ++comm) open.push_back(use(comm));
    const bool bounded = resident_bytes() < before + most_growth;
    for (void* const context : open) nccl.table().finalize(context);
    nccl.call(nccl.init(7 * many, 2, 0, &mask), 7 * many, 0);
    return bounded;
  });
  const Recording recording = recorded(folder, 0);
  EXPECT_EQ(recording.recorded, 2 * many + 1);
  EXPECT_EQ(recording.calls.size(), amldist::trace::FlightRecorder::default_capacity);
  EXPECT_LE(recording.communicators.size(), 256U);
  constexpr int first_version_that_says_which_one_ends = 4;
  if (GetParam() >= first_version_that_says_which_one_ends) {
    EXPECT_TRUE(std::ranges::any_of(recording.communicators, [](const auto& each) { return each.id == 7 * many; }))
        << "room of closed ones is used again";
  }
  EXPECT_LE(std::filesystem::file_size(folder / "42.0/0.nccl.trace"), std::uintmax_t{1} << 20);
}

TEST_P(NcclProfiler, AsksForNothingWithoutATrace) {
  const ScratchFolder folder;
  as_rank(0, folder, [] {
    ::unsetenv("AMLDIST_TRACE");
    const Nccl nccl(GetParam());
    int mask = -1;
    void* const context = nccl.init(1, 2, 0, &mask);
    nccl.call(context, 1, 0);
    nccl.table().finalize(context);
    return mask == 0;
  });
}

TEST_P(NcclProfiler, LeavesItsParentsRecorderAloneAfterAFork) {
  const ScratchFolder folder;
  as_rank(0, folder, [] {
    const Nccl nccl(GetParam());
    int mask = 0;
    void* const context = nccl.init(5, 2, 0, &mask);
    nccl.call(context, 5, 0);
    const pid_t child = ::fork();
    if (child == 0) {
      nccl.table().finalize(context);
      ::_exit(0);
    }
    int status = 1;
    return ::waitpid(child, &status, 0) == child && status == 0;
  });
  EXPECT_EQ(recorded(folder, 0).calls.size(), 1U);
}

INSTANTIATE_TEST_SUITE_P(Versions, NcclProfiler, ::testing::Range(1, 8));

struct Counts {
  int inits, starts, stops, states, finals, wrong_parents;
};

TEST(NcclProfilerChain, HandsOnWhatTheOtherProfilerAskedFor) {
  for (const int version : {1, 7}) {
    const ScratchFolder folder;
    as_rank(0, folder, [version] {
      ::setenv("AMLDIST_NCCL_PROFILER", OTHER_PROFILER, 1);
      const Nccl nccl(version);
      int mask = 0;
      void* const context = nccl.init(9, 2, 0, &mask);
      const int wanted = version == 1 ? 1 | 2 | 4 : 1 | (1 << 9) | 4;
      void* group = nullptr;
      Descriptor parent;
      if (version == 1) parent.put(0, std::uint8_t{1});
      else parent.put(0, std::uint64_t{1});
      nccl.table().start(context, &group, parent.bytes.data());
      void* event = nullptr;
      Descriptor call = allreduce(version, 9, 0);
      call.put(parent_at, group);
      nccl.table().start(context, &event, call.bytes.data());
      nccl.table().record(event, 19, nullptr);
      nccl.table().stop(event);
      nccl.table().stop(group);
      nccl.table().finalize(context);
      const auto counts =
          reinterpret_cast<Counts* (*)()>(::dlsym(::dlopen(OTHER_PROFILER, RTLD_NOW), "other_profiler_counts"))();
      return mask == wanted && counts->inits == 1 && counts->starts == 2 && counts->stops == 2 && counts->states == 1 &&
             counts->finals == 1 && counts->wrong_parents == 0;
    });
    EXPECT_EQ(recorded(folder, 0).calls.size(), 1U) << version;
  }
}

class NcclProfilerBehind : public ::testing::TestWithParam<std::tuple<int, const char*, int>> {};

TEST_P(NcclProfilerBehind, IsServedWithTheEventsThatItKnows) {
  const ScratchFolder folder;
  as_rank(0, folder, [] {
    const auto [version, other, events] = GetParam();
    ::setenv("AMLDIST_NCCL_PROFILER", other, 1);
    const Nccl nccl(version);
    int mask = 0;
    void* const context = nccl.init(9, 2, 0, &mask);
    nccl.call(context, 9, 0);
    nccl.table().finalize(context);
    const auto counts = reinterpret_cast<Counts* (*)()>(::dlsym(::dlopen(other, RTLD_NOW), "other_profiler_counts"))();
    return mask == events && counts->inits == 1 && counts->starts == 1 && counts->stops == 1 && counts->finals == 1;
  });
}

INSTANTIATE_TEST_SUITE_P(Versions, NcclProfilerBehind,
                         ::testing::Values(std::tuple{6, PROFILER_5, (1 << 12) - 1},
                                           std::tuple{7, PROFILER_5, (1 << 12) - 1},
                                           std::tuple{7, PROFILER_6, (1 << 15) - 1}));

/// The file that NCCL's own Inspector writes; empty: none.
std::string inspector_dump(const ScratchFolder& folder) {
  std::string all;
  if (!std::filesystem::exists(folder / "dump")) return all;
  for (const auto& each : std::filesystem::recursive_directory_iterator(folder / "dump")) {
    std::ifstream file(each.path());
    if (each.is_regular_file()) all.append(std::istreambuf_iterator<char>(file), {});
  }
  return all;
}

/// One all-reduce as NCCL reports it: enqueued, with the work of one channel on the device.
void enqueue_on_device(const Nccl& nccl, void* context) {
  constexpr auto collective = std::uint64_t{1} << 1;
  constexpr auto kernel_channel = std::uint64_t{1} << 6;
  Descriptor call;
  call.put(0, collective);
  call.put(body_at, std::uint64_t{1});
  call.put<const char*>(body_at + 8, "AllReduce");
  call.put(body_at + 32, std::size_t{1} << 20);
  call.put<const char*>(body_at + 48, "ncclFloat32");
  call.put(body_at + 56, std::uint8_t{1});  // channels
  call.put<const char*>(body_at + 64, "RING");
  call.put<const char*>(body_at + 72, "SIMPLE");
  void* event = nullptr;
  nccl.table().start(context, &event, call.bytes.data());
  Descriptor channel;
  channel.put(0, kernel_channel);
  channel.put(parent_at, event);
  channel.put(body_at + 8, std::uint64_t{1000});
  void* work = nullptr;
  nccl.table().start(context, &work, channel.bytes.data());
  nccl.table().stop(event);
  std::uint64_t stopped_at = 5000;
  constexpr int kernel_stop = 22;
  nccl.table().record(work, kernel_stop, &stopped_at);
  nccl.table().stop(work);
}

TEST(NcclProfilerChain, FeedsTheRealInspector) {
  const char* const inspector = std::getenv("AMLDIST_NCCL_INSPECTOR");
  if (inspector == nullptr)
    GTEST_SKIP() << "AMLDIST_NCCL_INSPECTOR does not name NCCL's Inspector (tests/gpu/inspector)";
  for (const int version : {5, 6, 7}) {
    const ScratchFolder folder;
    as_rank(0, folder, [&] {
      ::setenv("AMLDIST_NCCL_PROFILER", inspector, 1);
      ::setenv("NCCL_INSPECTOR_ENABLE", "1", 1);
      ::setenv("NCCL_INSPECTOR_DUMP_DIR", (folder / "dump").c_str(), 1);
      ::setenv("NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS", "10000", 1);
      const Nccl nccl(version);
      int mask = 0;
      void* const context = nccl.init(9, 2, 0, &mask);
      nccl.call(context, 9, 0);  // ours
      enqueue_on_device(nccl, context);
      for (int i = 0; i < 500 && inspector_dump(folder).empty(); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      nccl.table().finalize(context);
      return (mask & (1 << 1)) != 0 && (mask & (1 << 6)) != 0 && (mask & (1 << 9)) != 0;
    });
    const std::string dump = inspector_dump(folder);
    EXPECT_NE(dump.find(R"("coll":"AllReduce","coll_sn":1,"coll_msg_size_bytes":4194304)"), std::string::npos)
        << version << ": " << dump;
    EXPECT_NE(dump.find(R"("coll_timing_source":"kernel_gpu")"), std::string::npos)
        << "its parents are its own: " << dump;
    EXPECT_EQ(recorded(folder, 0).calls.size(), 1U) << version;
  }
}

TEST(NcclProfilerChain, SaysThatAnOtherProfilerGetsNothing) {
  for (const auto& [version, profiler] : {std::pair{4, OTHER_PROFILER}, std::pair{7, "/no/such/profiler.so"}}) {
    const ScratchFolder folder;
    ::testing::internal::CaptureStderr();
    as_rank(0, folder, [version = version, profiler = profiler] {
      ::setenv("AMLDIST_NCCL_PROFILER", profiler, 1);
      const Nccl nccl(version);
      int mask = 0;
      void* const context = nccl.init(9, 2, 0, &mask);
      nccl.call(context, 9, 0);
      nccl.table().finalize(context);
      return mask != 0;
    });
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("NCCL's events do not reach the profiler '" + std::string(profiler)), std::string::npos)
        << said;
    EXPECT_EQ(recorded(folder, 0).calls.size(), 1U) << "ours works";
  }
}

}  // namespace
