#include "trace/record/flight_recorder.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/ucontext.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <thread>

#include "scratch.hpp"
#include "support.hpp"
#include "trace/record/record_reader.hpp"

namespace amldist::trace {
namespace {

using amldist::testing::expect_sentence;
using amldist::testing::ScratchFolder;
using recorder_format::State;

RecorderOwner owner(std::uint32_t rank = 0, std::uint32_t size = 4) { return {"42.0", rank, size, rank, "node1"}; }

RecordedCall allreduce(std::uint64_t sequence, std::uint64_t bytes = 4096) {
  return {calls::Operation::allreduce, calls::DataType::float32, calls::ReduceOp::sum, 0, sequence, bytes, -1};
}

Recording read(const std::string& path) {
  auto recording = read_recording(AT_FDCWD, path);
  EXPECT_TRUE(recording) << recording.error().message;
  return recording ? std::move(*recording) : Recording{};
}

std::int64_t calendar_ns() {
  timespec now = {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec * 1'000'000'000LL + now.tv_nsec;
}

TEST(Recorder, ACallIsRecordedWhenItHasEnded) {
  const ScratchFolder folder;
  auto recorder = FlightRecorder::create(folder.path(), owner());
  ASSERT_TRUE(recorder) << recorder.error().message;
  const auto world = recorder->add_communicator(77, 0, 4, "world");
  const std::uint64_t now = TickClock().now();
  recorder->record_ended({calls::Operation::send, calls::DataType::int8, calls::ReduceOp::sum, world, 1, 5, 2}, now,
                         now);
  const Recording recording = read(recorder->path());
  ASSERT_EQ(recording.calls.size(), 1U);
  const auto& call = recording.calls.front();
  EXPECT_EQ(call.state, State::completed);
  EXPECT_EQ(call.operation, calls::Operation::send);
  EXPECT_EQ(call.started_ns, call.ended_ns);
}

TEST(Recorder, IsReadBackAsWritten) {
  const ScratchFolder folder;
  const auto before = calendar_ns();
  auto recorder = FlightRecorder::create(folder.path(), owner(3));
  ASSERT_TRUE(recorder) << recorder.error().message;
  const auto world = recorder->add_communicator(77, 3, 4, "world");
  recorder->complete(recorder->begin(allreduce(1)));
  recorder->fail(
      recorder->begin({calls::Operation::broadcast, calls::DataType::float64, calls::ReduceOp::sum, world, 2, 80, 1}),
      -7);
  const auto queued = recorder->enqueue(allreduce(3));
  static_cast<void>(
      recorder->begin({calls::Operation::send, calls::DataType::int8, calls::ReduceOp::sum, world, 0, 5, 2}));
  recorder->start(queued);
  recorder->note("rank 1 is missing");
  recorder->tick();

  const Recording recording = read(folder / "3.trace");
  EXPECT_EQ(recording.job, "42.0");
  EXPECT_EQ(recording.host, "node1");
  EXPECT_EQ(recording.note, "rank 1 is missing");
  EXPECT_EQ(recording.rank, 3U);
  EXPECT_EQ(recording.size, 4U);
  EXPECT_EQ(recording.pid, ::getpid());
  EXPECT_EQ(recording.recorded, 4U);
  ASSERT_EQ(recording.communicators.size(), 1U);
  EXPECT_EQ(recording.communicators[0].id, 77U);
  EXPECT_EQ(recording.communicators[0].name, "world");
  EXPECT_EQ(recording.communicators[0].entered, 3U) << "sends are not counted";
  EXPECT_EQ(recording.communicators[0].completed, 1U);
  ASSERT_EQ(recording.calls.size(), 4U);
  EXPECT_EQ(recording.calls[0].state, State::completed);
  EXPECT_EQ(recording.calls[0].bytes, 4096U);
  EXPECT_EQ(recording.calls[1].operation, calls::Operation::broadcast);
  EXPECT_EQ(recording.calls[1].type, calls::DataType::float64);
  EXPECT_EQ(recording.calls[1].state, State::failed);
  EXPECT_EQ(recording.calls[1].status, -7);
  EXPECT_EQ(recording.calls[1].peer, 1);
  EXPECT_EQ(recording.calls[2].state, State::started);
  EXPECT_EQ(recording.calls[2].ended_ns, 0);
  EXPECT_EQ(recording.calls[3].operation, calls::Operation::send);
  EXPECT_GE(recording.calls[0].started_ns, before - 1'000'000);
  EXPECT_LE(recording.calls[0].started_ns, recording.calls[0].ended_ns);
  EXPECT_LE(recording.calls[0].ended_ns, calendar_ns() + 1'000'000);
}

TEST(Recorder, KeepsTheFirstSentenceIfItNamesAWrongCall) {
  const ScratchFolder folder;
  const recorder_format::WrongCall wrong = {2};
  for (const bool comes_first : {true, false}) {
    auto recorder = FlightRecorder::create(folder.path(), owner(1));
    ASSERT_TRUE(recorder) << recorder.error().message;
    if (!comes_first) recorder->note("rank 3 is dead");
    recorder->note("rank 2 called barrier instead", wrong);
    EXPECT_EQ(read(folder / "1.trace").wrong, comes_first ? std::optional(wrong) : std::nullopt);
    recorder->note("rank 0 is dead");
    EXPECT_EQ(read(folder / "1.trace").note, comes_first ? "rank 2 called barrier instead" : "rank 0 is dead");
    recorder->close(FlightRecorder::Ending::failed);
  }
  for (const bool is_forged : {true, false}) {
    auto recorder = FlightRecorder::create(folder.path(), owner(1));
    recorder->note("ranks 2 and 3", recorder_format::WrongCall{is_forged ? std::optional(4U) : std::nullopt});
    const auto heard = read(folder / "1.trace").wrong;
    EXPECT_EQ(heard.has_value(), !is_forged) << "the step has 4 ranks";
    EXPECT_FALSE(heard && heard->rank);
    recorder->close(FlightRecorder::Ending::failed);
  }
}

TEST(Recorder, ForgetsAWrongCallAfterWhichTheRankHasGoneOn) {
  const ScratchFolder folder;
  auto recorder = FlightRecorder::create(folder.path(), owner(1));
  ASSERT_TRUE(recorder) << recorder.error().message;
  const auto call = [&](bool succeeds) {
    const auto ticket = recorder->begin(allreduce(1));
    if (succeeds) recorder->complete(ticket);
    else recorder->fail(ticket, -1);
  };
  call(true);
  call(false);
  recorder->note("rank 2 called barrier instead", recorder_format::WrongCall{2});
  call(false);
  EXPECT_EQ(read(folder / "1.trace").wrong, recorder_format::WrongCall{2});
  call(true);
  EXPECT_EQ(read(folder / "1.trace").wrong, std::nullopt);
  call(false);
  recorder->note("rank 0 is dead");
  EXPECT_EQ(read(folder / "1.trace").note, "rank 0 is dead");
  call(true);
  recorder->note("rank 3 called reduce instead", recorder_format::WrongCall{3});
  EXPECT_EQ(read(folder / "1.trace").wrong, recorder_format::WrongCall{3});
}

TEST(Recorder, KeepsWhereCallsWereMadeIfAsked) {
  const ScratchFolder folder;
  RecorderOwner with = owner(1);
  with.has_sites = true;
  auto recorder = FlightRecorder::create(folder.path(), with, recorder_format::smallest_ring);
  auto without = FlightRecorder::create(folder.path(), owner(2), recorder_format::smallest_ring);
  ASSERT_TRUE(recorder && without);
  RecordedCall call = allreduce(1);
  for (std::uint64_t i = 1; i <= 2 * recorder_format::smallest_ring; ++i) {
    call.site = reinterpret_cast<const void*>(std::uintptr_t{0x1000} + i);
    recorder->complete(recorder->begin(call));
    without->complete(without->begin(call));
  }
  static_cast<void>(recorder->begin(allreduce(2)));  // its place was another call's
  const Recording recording = read(folder / "1.trace");
  ASSERT_EQ(recording.calls.size(), recorder_format::smallest_ring);
  EXPECT_EQ(recording.calls.front().site, 0x1000U + recorder_format::smallest_ring + 2);
  EXPECT_EQ(recording.calls[recording.calls.size() - 2].site, 0x1000U + 2 * recorder_format::smallest_ring);
  EXPECT_EQ(recording.calls.back().site, 0U);
  EXPECT_EQ(read(folder / "2.trace").calls.back().site, 0U);
}

TEST(Recorder, KeepsTheMembersOfACommunicator) {
  const ScratchFolder folder;
  auto recorder = FlightRecorder::create(folder.path(), {"42.0", 0, 64, 0, "node1", "mpi"});
  ASSERT_TRUE(recorder);
  const std::vector<std::uint32_t> row = {0, 8, 16, 24};
  const std::vector<std::uint32_t> any = {0, 3, 5, 60};
  static_cast<void>(recorder->add_communicator({7, 0, 4, "dp", 0, row}));
  static_cast<void>(recorder->add_communicator({8, 0, 4, "tp", 0, any}));
  static_cast<void>(recorder->add_communicator({9, 0, 4, "pp", 0, {}}));
  const Recording recording = read(folder / "0.mpi.trace");
  EXPECT_EQ(recording.source, "mpi");
  ASSERT_EQ(recording.communicators.size(), 3U);
  EXPECT_EQ(recording.communicators[0].world_ranks.to_list(), row);
  EXPECT_EQ(recording.communicators[1].world_ranks.to_list(), any);
  EXPECT_TRUE(recording.communicators[2].world_ranks.empty());
}

TEST(Recorder, KeepsTheNewestCalls) {
  const ScratchFolder folder;
  auto recorder = FlightRecorder::create(folder.path(), owner(), 16);
  ASSERT_TRUE(recorder);
  static_cast<void>(recorder->add_communicator(1, 0, 4));
  const auto oldest = recorder->begin(allreduce(1));
  for (std::uint64_t sequence = 2; sequence <= 100; ++sequence)
    recorder->complete(recorder->begin(allreduce(sequence)));
  recorder->complete(oldest);  // its line is another call's by now
  const Recording recording = read(folder / "0.trace");
  ASSERT_EQ(recording.calls.size(), 16U);
  EXPECT_EQ(recording.recorded, 100U);
  for (std::size_t i = 0; i < 16; ++i) EXPECT_EQ(recording.calls[i].sequence, 85 + i);
  EXPECT_EQ(recording.communicators.at(0).completed, 100U);
}

TEST(Recorder, SurvivesTheDeathOfItsProcess) {
  const ScratchFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    auto recorder = FlightRecorder::create(folder.path(), owner());
    static_cast<void>(recorder->add_communicator(1, 0, 4));
    recorder->complete(recorder->begin(allreduce(1)));
    static_cast<void>(recorder->begin(allreduce(2, 1 << 20)));
    std::raise(SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const Recording recording = read(folder / "0.trace");
  EXPECT_EQ(recording.writer, Writer::gone);
  EXPECT_EQ(recording.ending, recorder_format::Ending::none);
  ASSERT_EQ(recording.calls.size(), 2U);
  EXPECT_TRUE(recording.calls[1].pending());
  EXPECT_EQ(recording.calls[1].bytes, 1U << 20);
}

/// A child that records one call and waits; the parent ends it.
pid_t recording_child(const ScratchFolder& folder) {
  int ready[2] = {};
  EXPECT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto recorder = FlightRecorder::create(folder.path(), owner());
    const bool fine = recorder.ok() && ::write(ready[1], "x", 1) == 1;
    while (fine) ::pause();
    ::_exit(1);
  }
  char byte = 0;
  EXPECT_EQ(::read(ready[0], &byte, 1), 1);
  ::close(ready[0]);
  ::close(ready[1]);
  return child;
}

TEST(Recorder, TellsWhetherItsWriterRunsIsStoppedOrGone) {
  const ScratchFolder folder;
  const pid_t child = recording_child(folder);
  EXPECT_EQ(read(folder / "0.trace").writer, Writer::runs);
  int status = 0;
  ::kill(child, SIGSTOP);
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  EXPECT_EQ(read(folder / "0.trace").writer, Writer::stopped);
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(read(folder / "0.trace").writer, Writer::gone);
}

TEST(Recorder, ReplacesADeadRanksFileAndNeverALivingOnes) {
  const ScratchFolder folder;
  const pid_t child = recording_child(folder);
  const auto second = FlightRecorder::create(folder.path(), owner());
  ASSERT_FALSE(second);
  expect_sentence(second.error().message);
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(FlightRecorder::create(folder.path(), owner()));
}

TEST(Recorder, IsForItsUserOnly) {
  const ScratchFolder folder;
  const mode_t former = ::umask(0);
  const auto recorder = FlightRecorder::create(folder.path(), owner());
  ::umask(former);
  ASSERT_TRUE(recorder);
  struct stat status = {};
  ASSERT_EQ(::stat((folder / "0.trace").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
}

TEST(Recorder, DoesNotWriteThroughALink) {
  const ScratchFolder folder;
  const std::string victim = folder / "victim";
  std::ofstream(victim) << "precious";
  ASSERT_EQ(::symlink(victim.c_str(), (folder / "0.trace").c_str()), 0);
  const auto recorder = FlightRecorder::create(folder.path(), owner());
  EXPECT_TRUE(recorder) << "the link is replaced, what it points to is left alone";
  std::string words;
  std::ifstream(victim) >> words;
  EXPECT_EQ(words, "precious");
}

TEST(Recorder, RemovesItsFileOnlyWhenAllWentWell) {
  const ScratchFolder folder;
  ASSERT_EQ(::mkdir((folder / "42.0").c_str(), 0700), 0);
  auto well = FlightRecorder::create(folder / "42.0", owner(0));
  auto failed = FlightRecorder::create(folder / "42.0", owner(1));
  ASSERT_TRUE(well && failed);
  well->close(FlightRecorder::Ending::well);
  failed->close(FlightRecorder::Ending::failed);
  EXPECT_NE(::access((folder / "42.0/0.trace").c_str(), F_OK), 0);
  EXPECT_EQ(read(folder / "42.0/1.trace").ending, recorder_format::Ending::failed);
  auto again = FlightRecorder::create(folder / "42.0", owner(1));
  ASSERT_TRUE(again);
  again->close(FlightRecorder::Ending::well);
  EXPECT_NE(::access((folder / "42.0").c_str(), F_OK), 0) << "the last one takes the folder along";
}

TEST(Recorder, IsNotClosedByAForkedChild) {
  const ScratchFolder folder;
  auto recorder = FlightRecorder::create(folder.path(), owner());
  ASSERT_TRUE(recorder);
  const pid_t child = ::fork();
  if (child == 0) {
    recorder->close(FlightRecorder::Ending::well);
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  EXPECT_EQ(read(folder / "0.trace").ending, recorder_format::Ending::none);
}

TEST(Recorder, SaysWhenItHasNoRoom) {
  const ScratchFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit small = {4096, 4096};  // what a full file system answers, to this process only
    ::setrlimit(RLIMIT_FSIZE, &small);
    std::signal(SIGXFSZ, SIG_IGN);
    const auto recorder = FlightRecorder::create(folder.path(), owner());
    ::_exit(!recorder && !recorder.error().message.empty() ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_NE(::access((folder / "0.trace").c_str(), F_OK), 0) << "nothing half made stays behind";
}

TEST(Recorder, DoesNothingWhenItIsOff) {
  FlightRecorder off;
  EXPECT_FALSE(off.on());
  EXPECT_EQ(off.begin(allreduce(1)), 0U);
  off.complete(0);
  off.tick();
  off.note("nothing");
  off.close(FlightRecorder::Ending::well);
}

TEST(Recorder, TakesCallsFromSeveralThreads) {
  const ScratchFolder folder;
  auto recorder = FlightRecorder::create(folder.path(), owner(), 1 << 14);
  ASSERT_TRUE(recorder);
  constexpr std::uint64_t calls = 2000;
  constexpr std::uint32_t threads = 4;
  std::vector<std::thread> callers;
  for (std::uint32_t t = 0; t < threads; ++t) {
    static_cast<void>(recorder->add_communicator(t, 0, 4));
    callers.emplace_back([&recorder, t] {
      for (std::uint64_t i = 1; i <= calls; ++i) {
        auto call = allreduce(i);
        call.communicator = t;
        recorder->complete(recorder->begin(call));
      }
    });
  }
  for (auto& caller : callers) caller.join();
  const Recording recording = read(folder / "0.trace");
  ASSERT_EQ(recording.calls.size(), calls * threads);
  std::array<std::uint64_t, threads> next = {};
  for (const CallRecord& call : recording.calls) EXPECT_EQ(call.sequence, ++next.at(call.communicator));
}

TEST(Recorder, KnowsALongCallAmongABurstOfShortOnes) {
  constexpr std::uint64_t burst = 100'000;  // many more than have exact times in a tick of the kernel's clock
  constexpr std::int64_t pause_ns = 100'000'000;
  constexpr std::int64_t longest_tick_ns = 10'000'000;
  const ScratchFolder folder;
  auto recorder = FlightRecorder::create(folder.path(), owner());
  ASSERT_TRUE(recorder) << recorder.error().message;
  static_cast<void>(recorder->add_communicator(77, 0, 4, "world"));
  recorder->one_at_a_time();
  for (std::uint64_t i = 1; i <= burst; ++i) recorder->complete(recorder->begin(allreduce(i)));
  const auto waiting = recorder->begin(allreduce(burst + 1));
  std::this_thread::sleep_for(std::chrono::nanoseconds(pause_ns));
  recorder->complete(waiting);
  const auto posted = recorder->enqueue(allreduce(burst + 2));
  recorder->start(posted);
  recorder->complete(posted);
  recorder->tick();
  const Recording recording = read(folder / "0.trace");
  EXPECT_EQ(recording.recorded, burst + 2);
  const auto& calls = recording.calls;
  const CallRecord& waited = calls[calls.size() - 2];
  EXPECT_GE(waited.ended_ns - waited.started_ns, pause_ns - longest_tick_ns);
  EXPECT_EQ(waited.started_ns, waited.enqueued_ns);
  EXPECT_GE(calls.back().started_ns, calls.back().enqueued_ns);
  std::int64_t before = 0;
  for (const CallRecord& call : calls) {
    EXPECT_EQ(call.state, State::completed);
    EXPECT_LE(before, call.enqueued_ns);
    EXPECT_LE(call.started_ns, call.ended_ns);
    before = call.enqueued_ns;
  }
}

TEST(Recorder, HasLinesForTenThousandCommunicatorsThatComeAndGo) {
  const ScratchFolder folder;
  auto recorder = FlightRecorder::create(folder.path(), owner());
  ASSERT_TRUE(recorder);
  constexpr std::array<std::uint32_t, 3> few = {0, 1, 3};  // no row of numbers: they fill the pool
  std::vector<std::uint32_t> many(150, 3);
  many.front() = 1;
  std::span<const std::uint32_t> members;
  for (std::uint64_t id = 1; id <= 10'000; ++id) {
    members = id == 1 ? std::span<const std::uint32_t>(few) : many;  // the first has little room to reuse
    const auto slot =
        recorder->add_communicator({id, 0, static_cast<std::uint32_t>(members.size()), "made again", 0, members});
    ASSERT_LT(slot, recorder_format::communicator_slots) << id;
    recorder->complete(
        recorder->begin({calls::Operation::barrier, calls::DataType::uint8, calls::ReduceOp::sum, slot, 1, 0}));
    recorder->close_communicator(slot);
  }
  const Recording recording = read(folder / "0.trace");
  EXPECT_EQ(recording.recorded, 10'000U);
  EXPECT_LE(recording.communicators.size(), recorder_format::communicator_slots);
  const auto last = std::ranges::max(recording.communicators, {}, &CommunicatorRecord::id);
  EXPECT_EQ(last.id, 10'000U);
  EXPECT_EQ(last.entered, 1U);
  EXPECT_EQ(last.world_ranks.to_list(), std::vector<std::uint32_t>(members.begin(), members.end()));
  EXPECT_TRUE(std::ranges::all_of(recording.communicators, [](const auto& each) {
    return each.world_ranks.empty() || each.world_ranks.size() == each.size;
  }));
}

TEST(Recorder, TakesTheCallsOfAnEarlierCommunicatorForNoneOfALaterOne) {
  const ScratchFolder folder;
  auto recorder = FlightRecorder::create(folder.path(), owner());
  ASSERT_TRUE(recorder);
  for (std::uint32_t i = 0; i < recorder_format::communicator_slots; ++i) recorder->add_communicator(i + 1, 0, 4);
  const auto call = [&](std::uint64_t sequence) {
    recorder->begin({calls::Operation::barrier, calls::DataType::uint8, calls::ReduceOp::sum, 7, sequence, 0});
  };
  call(1);
  call(2);
  recorder->close_communicator(7);
  ASSERT_EQ(recorder->add_communicator(1001, 0, 4), 7U);
  EXPECT_EQ(std::ranges::count(read(folder / "0.trace").calls, 7U, &CallRecord::communicator), 0);
  call(1);
  const Recording recording = read(folder / "0.trace");
  EXPECT_EQ(recording.calls.size(), 3U);
  EXPECT_EQ(std::ranges::count(recording.calls, 7U, &CallRecord::communicator), 1);
  EXPECT_EQ(recording.calls.back().communicator, 7U);
}

#if defined(__x86_64__)
/// A second heartbeat comes between two stores of the first, whose thread goes on one instruction at a time.
struct SecondTick {
  static inline FlightRecorder* recorder = nullptr;
  static inline const recorder_format::RecorderHeader* header = nullptr;
  static inline std::uint64_t ticks_before = 0;
  static inline volatile std::sig_atomic_t has_come = 0;
  static inline volatile std::sig_atomic_t steps_left = 1'000'000;
  /// Far longer than a busy machine keeps a process waiting between two readings of its clocks.
  static constexpr std::uint64_t later_ns = 60'000'000;

  static greg_t& flags(void* context) { return static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_EFL]; }
  static void begin(int /*signal*/, siginfo_t* /*info*/, void* context) { flags(context) |= trap_flag; }
  static void on_step(int /*signal*/, siginfo_t* /*info*/, void* context) {
    const bool is_between = header->latest_realtime_ns.load() == 0 && header->latest_ticks.load() != ticks_before;
    steps_left = steps_left - 1;
    if (!is_between && steps_left > 0) return;
    flags(context) &= ~trap_flag;
    const std::uint64_t until = TickClock::monotonic_ns() + later_ns;
    while (TickClock::monotonic_ns() < until) {
    }
    recorder->tick();
    has_come = is_between ? 1 : 0;
  }

 private:
  static constexpr greg_t trap_flag = 0x100;
};

/// Else times of calls would be wrong by as much as lies between the two.
TEST(Recorder, TwoHeartbeatsAtOnceLeaveOnePointOfTheClock) {
  const ScratchFolder folder;
  auto recorder = FlightRecorder::create(folder.path(), owner());
  ASSERT_TRUE(recorder);
  const FileDescriptor file(::open((folder / "0.trace").c_str(), O_RDONLY | O_CLOEXEC));
  void* const memory = ::mmap(nullptr, sizeof(recorder_format::RecorderHeader), PROT_READ, MAP_SHARED, file.get(), 0);
  ASSERT_NE(memory, MAP_FAILED);
  const auto& header = *static_cast<const recorder_format::RecorderHeader*>(memory);
  const auto beat = [&] {
    recorder->tick();
    const recorder_format::ClockPoint point = {header.latest_ticks.load(), header.latest_realtime_ns.load()};
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return point;
  };
  SecondTick::recorder = &*recorder;
  SecondTick::header = &header;
  struct sigaction step = {};
  step.sa_sigaction = SecondTick::on_step;
  step.sa_flags = SA_SIGINFO;
  ASSERT_EQ(::sigaction(SIGTRAP, &step, nullptr), 0);
  struct sigaction begin = step;
  begin.sa_sigaction = SecondTick::begin;
  ASSERT_EQ(::sigaction(SIGUSR1, &begin, nullptr), 0);
  const auto first = beat();
  SecondTick::ticks_before = first.ticks;
  ::raise(SIGUSR1);
  const auto disturbed = beat();
  ASSERT_EQ(SecondTick::has_come, 1);
  const auto last = beat();
  ::signal(SIGTRAP, SIG_DFL);
  ::signal(SIGUSR1, SIG_DFL);
  ::munmap(memory, sizeof(recorder_format::RecorderHeader));
  const double rate =
      static_cast<double>(last.realtime_ns - first.realtime_ns) / static_cast<double>(last.ticks - first.ticks);
  const double ns = static_cast<double>(disturbed.ticks - first.ticks) * rate;
  EXPECT_NEAR(ns, static_cast<double>(disturbed.realtime_ns - first.realtime_ns), SecondTick::later_ns / 3.0);
}
#endif

TEST(Recorder, TakesAWaitForOneInTheBackgroundWhileOtherThreadsOfAnMpiProgramGoOn) {
  const ScratchFolder folder;
  RecorderOwner of_mpi = owner();
  of_mpi.source = "mpi";
  auto recorder = FlightRecorder::create(folder.path(), of_mpi);
  ASSERT_TRUE(recorder);
  const auto slot = recorder->add_communicator(1, 0, 4);
  recorder->begin({calls::Operation::recv, calls::DataType::uint8, calls::ReduceOp::sum, slot, 0, 4, 1});
  const auto call = [&] {
    recorder->complete(
        recorder->begin({calls::Operation::barrier, calls::DataType::uint8, calls::ReduceOp::sum, slot, 1, 0}));
    recorder->tick();
    return read(folder / "0.mpi.trace").calls.front().state;
  };
  EXPECT_EQ(call(), recorder_format::State::started) << "a call that ended at about the same time says nothing";
  std::this_thread::sleep_for(std::chrono::milliseconds(1200));
  EXPECT_EQ(call(), recorder_format::State::enqueued);
}

/// Python calls MPI_Finalize also where an exception ends it.
TEST(Recorder, OfAProcessWhoseCallsHaveFailedStaysUnlessItEndsWell) {
  for (const int status : {0, 1}) {
    const ScratchFolder folder;
    const pid_t process = ::fork();
    if (process == 0) {
      auto recorder = FlightRecorder::create(folder.path(), owner());
      if (recorder) recorder->close_and_keep_after_failure();
      if (::fork() == 0) std::exit(0);  // a child says nothing about it
      ::wait(nullptr);
      if (::access((folder / "0.trace").c_str(), F_OK) != 0) ::_exit(7);
      std::exit(status);
    }
    int ended = 0;
    ::waitpid(process, &ended, 0);
    EXPECT_EQ(WEXITSTATUS(ended), status);
    EXPECT_EQ(::access((folder / "0.trace").c_str(), F_OK) == 0, status != 0);
    if (status == 0) continue;
    EXPECT_EQ(read(folder / "0.trace").ending, recorder_format::Ending::failed);
  }
}

TEST(Recorder, JudgesNobodyByACommunicatorBeyondItsLines) {
  const ScratchFolder folder;
  auto recorder = FlightRecorder::create(folder.path(), owner());
  ASSERT_TRUE(recorder);
  for (std::uint32_t i = 0; i < recorder_format::communicator_slots; ++i) {
    EXPECT_EQ(recorder->add_communicator(i + 1, 0, 4), i);
  }
  EXPECT_EQ(recorder->add_communicator(1000, 0, 4), recorder_format::no_slot);
  recorder->complete(recorder->begin(
      {calls::Operation::allreduce, calls::DataType::int8, calls::ReduceOp::sum, recorder_format::no_slot, 9, 1}));
  recorder->close_communicator(7);
  EXPECT_EQ(recorder->add_communicator(1001, 0, 4), 7U);
}

TEST(RecordFormat, KeepsTheTagsOfMessages) {
  calls::Call call;
  call.operation = calls::Operation::send;
  EXPECT_EQ(recorder_format::tag_of(call), 0);
  call.tag = 7;
  EXPECT_EQ(recorder_format::tag_of(call), 7);
  call.tag = 1'000'000;
  EXPECT_GE(recorder_format::tag_of(call), recorder_format::first_shared_tag);
  EXPECT_LT(recorder_format::tag_of(call), recorder_format::any_tag);
  call.operation = calls::Operation::allreduce;
  EXPECT_EQ(recorder_format::tag_of(call), 0) << "there it would be the number of a function";
}

}  // namespace
}  // namespace amldist::trace
