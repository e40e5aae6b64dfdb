// A file from another user: whatever its bytes, reading it ends with a value or a sentence.
#include "trace/record/record_reader.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>
#include <thread>

#include "base/os/file_descriptor.hpp"
#include "scratch.hpp"
#include "support.hpp"
#include "trace/record/flight_recorder.hpp"

namespace amldist::trace {
namespace {

using amldist::testing::expect_sentence;
using amldist::testing::ScratchFolder;

/// Bytes of an honest file with three calls.
std::string honest_file() {
  const ScratchFolder folder;
  auto recorder = FlightRecorder::create(folder.path(), {"42.0", 1, 4, 1, "node1"}, 16);
  static_cast<void>(recorder->add_communicator(1, 1, 4));
  for (std::uint64_t i = 1; i <= 3; ++i) {
    recorder->complete(
        recorder->begin({calls::Operation::allreduce, calls::DataType::float32, calls::ReduceOp::sum, 0, i, 64, -1}));
  }
  std::stringstream bytes;
  bytes << std::ifstream(recorder->path(), std::ios::binary).rdbuf();
  return bytes.str();
}

Result<Recording> read_bytes(const std::string& bytes) {
  const ScratchFolder folder;
  std::ofstream(folder / "1.trace", std::ios::binary) << bytes;
  return read_recording(AT_FDCWD, folder / "1.trace");
}

template <typename Number>
std::string with(std::string bytes, std::size_t offset, Number value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
  return bytes;
}

struct Wrong {
  const char* what;
  std::function<std::string(const std::string&)> damage;
};

std::ostream& operator<<(std::ostream& out, const Wrong& wrong) { return out << wrong.what; }

class Refused : public ::testing::TestWithParam<Wrong> {};

TEST_P(Refused, WithOneSentence) {
  const auto recording = read_bytes(GetParam().damage(honest_file()));
  ASSERT_FALSE(recording);
  expect_sentence(recording.error().message);
}

using Bytes = const std::string&;
INSTANTIATE_TEST_SUITE_P(
    Files, Refused,
    ::testing::Values(Wrong{"empty", [](Bytes) { return std::string(); }},
                      Wrong{"shorter than its header", [](Bytes file) { return file.substr(0, 100); }},
                      Wrong{"cut in the ring", [](Bytes file) { return file.substr(0, file.size() - 1); }},
                      Wrong{"other magic", [](Bytes file) { return with(file, 0, std::uint64_t{0x6f6f6f}); }},
                      Wrong{"half made", [](Bytes file) { return with(file, 0, std::uint64_t{0}); }},
                      Wrong{"version 1", [](Bytes file) { return with(file, 8, 1U); }},
                      Wrong{"version 3", [](Bytes file) { return with(file, 8, 3U); }},
                      Wrong{"header elsewhere", [](Bytes file) { return with(file, 12, 0xffffffffU); }},
                      Wrong{"entries elsewhere", [](Bytes file) { return with(file, 16, 0xfffffff0U); }},
                      Wrong{"entries of no length", [](Bytes file) { return with(file, 20, 0U); }},
                      Wrong{"ring of 0", [](Bytes file) { return with(file, 24, 0U); }},
                      Wrong{"ring of 17", [](Bytes file) { return with(file, 24, 17U); }},
                      Wrong{"ring of 2^31", [](Bytes file) { return with(file, 24, 1U << 31); }},
                      Wrong{"more entries than bytes", [](Bytes file) { return with(file, 24, 1U << 12); }},
                      Wrong{"rank 4 of 4", [](Bytes file) { return with(file, 28, 4U); }},
                      Wrong{"no ranks", [](Bytes file) { return with(file, 32, 0U); }},
                      Wrong{"four milliard ranks", [](Bytes file) { return with(file, 32, 0xffffffffU); }}));

TEST(Reader, MakesForeignTextPrintable) {
  std::string file = honest_file();
  constexpr std::size_t job = offsetof(recorder_format::RecorderHeader, job);
  constexpr std::size_t host = offsetof(recorder_format::RecorderHeader, host);
  file.replace(job, 128, std::string(128, '\x1b'));
  file.replace(host, 6, "a\nb\xff\0", 6);
  const auto recording = read_bytes(file);
  ASSERT_TRUE(recording);
  EXPECT_EQ(recording->job, std::string(128, '?'));
  EXPECT_EQ(recording->host, "a?b?");
}

TEST(Reader, BelievesNoCallSitesElsewhere) {
  constexpr std::size_t at = offsetof(recorder_format::RecorderHeader, sites_offset);
  for (const std::uint32_t forged : {1U, 4096U, 0xffffffffU, recorder_format::sites_offset_of(16)}) {
    const auto recording = read_bytes(with(honest_file(), at, forged));
    ASSERT_TRUE(recording);
    for (const CallRecord& call : recording->calls) EXPECT_EQ(call.site, 0U) << forged;
  }
}

TEST(Reader, LeavesOutLinesThatAreBeingWritten) {
  std::string file = honest_file();
  file = with(file, recorder_format::entries_offset, std::uint64_t{0});
  file = with(file, recorder_format::entries_offset + 64, std::uint64_t{99});  // not a ticket of this line
  const auto recording = read_bytes(file);
  ASSERT_TRUE(recording);
  ASSERT_EQ(recording->calls.size(), 1U);
  EXPECT_EQ(recording->calls[0].sequence, 3U);
}

TEST(Reader, TakesNoHalfOfACallFromARingThatIsOverwritten) {
  const ScratchFolder folder;
  auto recorder = FlightRecorder::create(folder.path(), {"42.0", 0, 4, 0, "node1"}, recorder_format::smallest_ring);
  ASSERT_TRUE(recorder);
  const auto world = recorder->add_communicator(1, 0, 4, "world");
  std::atomic<bool> over = false;
  std::thread writer([&] {
    for (std::uint64_t i = 1; !over; ++i) {
      recorder->complete(recorder->begin({calls::Operation::allreduce, calls::DataType::float32, calls::ReduceOp::sum,
                                          world, i, i * 4, static_cast<std::int32_t>(i % 1000)}));
    }
  });
  std::size_t seen = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto recording = read_recording(AT_FDCWD, folder / "0.trace");
    if (!recording) ADD_FAILURE() << recording.error().message;
    if (!recording) break;
    for (const CallRecord& call : recording->calls) {
      ++seen;
      EXPECT_EQ(call.sequence, call.ticket);
      EXPECT_EQ(call.bytes, call.sequence * 4);
      EXPECT_EQ(call.peer, static_cast<std::int32_t>(call.sequence % 1000));
    }
  }
  over = true;
  writer.join();
  EXPECT_GT(seen, 0U);
}

TEST(Reader, KeepsAbsurdTimesWithinBounds) {
  std::string file = honest_file();
  constexpr std::size_t created = offsetof(recorder_format::RecorderHeader, created);
  for (const std::uint64_t time : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
    const auto recording = read_bytes(with(with(file, created, time), created + 8, ~time));
    ASSERT_TRUE(recording);
    for (const CallRecord& call : recording->calls) EXPECT_GE(call.started_ns, 0);
    EXPECT_GE(recording->latest_ns, 0);
  }
}

TEST(Reader, OutlivesAnyBytes) {
  const std::string honest = honest_file();
  std::mt19937 dice(20261121);
  for (int round = 0; round < 3000; ++round) {
    std::string file = honest;
    const int damages = 1 + static_cast<int>(dice() % 40);
    for (int i = 0; i < damages; ++i) {
      const bool in_header = dice() % 2 == 0;
      file[dice() % (in_header ? 120 : file.size())] = static_cast<char>(dice());
    }
    if (dice() % 4 == 0) file.resize(dice() % file.size());
    const auto recording = read_bytes(file);
    if (!recording) expect_sentence(recording.error().message);
    else EXPECT_LT(recording->rank, recording->size);
  }
}

TEST(Reader, RefusesWhatIsNoFile) {
  const ScratchFolder folder;
  ASSERT_EQ(::mkfifo((folder / "0.trace").c_str(), 0600), 0);
  ASSERT_EQ(::symlink("/etc/passwd", (folder / "1.trace").c_str()), 0);
  ASSERT_EQ(::mkdir((folder / "2.trace").c_str(), 0700), 0);
  for (const char* const name : {"0.trace", "1.trace", "2.trace", "3.trace"}) {
    const auto recording = read_recording(AT_FDCWD, folder / name);
    ASSERT_FALSE(recording) << name;
    expect_sentence(recording.error().message);
  }
}

TEST(Reader, ReadsAStepByRankAndNamesTheRest) {
  const ScratchFolder folder;
  std::vector<FlightRecorder> recorders;
  for (const std::uint32_t rank : {10U, 2U, 0U}) {
    auto recorder = FlightRecorder::create(folder.path(), {"42.0", rank, 16, 0, "node1"}, 16);
    ASSERT_TRUE(recorder);
    recorders.push_back(std::move(*recorder));
  }
  std::ofstream(folder / "5.trace") << "rubbish";
  std::ofstream(folder / "readme") << "not looked at";
  const auto step = read_step_recordings(folder.path());
  ASSERT_TRUE(step) << step.error().message;
  ASSERT_EQ(step->recordings.size(), 3U);
  EXPECT_EQ(step->recordings[1].rank, 2U);
  EXPECT_EQ(step->recordings[2].rank, 10U);
  ASSERT_EQ(step->problems.size(), 1U);
  expect_sentence(step->problems[0]);
}

TEST(Reader, ReadsAFileWithManyNamesOnce) {
  const ScratchFolder folder;
  auto recorder = FlightRecorder::create(folder.path(), {"42.0", 0, 4, 0, "node1"}, 16);
  ASSERT_TRUE(recorder);
  for (int i = 1; i <= 300; ++i) {
    const std::string link = folder / ("link" + std::to_string(i) + ".trace");
    ASSERT_EQ(::link(recorder->path().c_str(), link.c_str()), 0);
  }
  const auto step = read_step_recordings(folder.path());
  ASSERT_TRUE(step);
  EXPECT_EQ(step->recordings.size(), 1U);
  EXPECT_TRUE(step->problems.empty());
}

TEST(Reader, ReadsNoMoreThanFourGibibytesAndSaysSo) {
  const ScratchFolder folder;
  constexpr off_t large = 4 << 20;  // of holes
  for (int i = 0; i < 1100; ++i) {
    const std::string path = folder / (std::to_string(i) + ".trace");
    std::ofstream(path) << "";
    ASSERT_EQ(::truncate(path.c_str(), large), 0);
  }
  const auto step = read_step_recordings(folder.path());
  ASSERT_TRUE(step);
  ASSERT_EQ(step->problems.size(), 18U)
      << "16 files that are no recorders, how many more, and the sentence about the rest";
  EXPECT_TRUE(step->problems[16].starts_with("1008 more files of ")) << step->problems[16];
  EXPECT_TRUE(
      step->problems.back().ends_with("has 1100 recorders, of which 1024 were read: the limits are 65536 files "
                                      "and 4 GiB"))
      << step->problems.back();
}

/// What a user can make in a folder of memory: root's metrics service looks there as that user, with a limit on memory.
TEST(Reader, ReadsSomeOfAHundredThousandRecordersAndSaysSo) {
  const ScratchFolder folder;
  auto recorder = FlightRecorder::create(folder.path(), {"42.0", 0, 4, 0, "node1"}, 16);
  ASSERT_TRUE(recorder);
  constexpr int many = 100'000;
  for (int i = 1; i <= many; ++i) {
    const std::string name = folder / ("x" + std::to_string(i) + ".trace");
    const FileDescriptor file(::open(name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_TRUE(file);
  }
  const auto step = read_step_recordings(folder.path());
  ASSERT_TRUE(step);
  EXPECT_EQ(step->recordings.size(), 1U) << "0.trace";
  ASSERT_EQ(step->problems.size(), 18U);
  EXPECT_TRUE(step->problems[16].starts_with("65519 more files of ")) << step->problems[16];
  EXPECT_TRUE(
      step->problems.back().ends_with("has 100001 recorders, of which 65536 were read: the limits are 65536 "
                                      "files and 4 GiB"))
      << step->problems.back();
}

TEST(Reader, KeepsNoRoomForCallsThatItDoesNotKeep) {
  const ScratchFolder folder;
  auto recorder = FlightRecorder::create(folder.path(), {"42.0", 0, 4, 0, "node1"}, 4096);
  ASSERT_TRUE(recorder);
  static_cast<void>(recorder->add_communicator(1, 0, 4));
  for (std::uint64_t i = 1; i <= 4096; ++i) {
    recorder->complete(
        recorder->begin({calls::Operation::barrier, calls::DataType::uint8, calls::ReduceOp::sum, 0, i, 0, -1}));
  }
  const auto step = read_step_recordings(folder.path(), 64);
  ASSERT_TRUE(step && step->recordings.size() == 1);
  EXPECT_EQ(step->recordings[0].calls.back().sequence, 4096U);
  EXPECT_LE(step->recordings[0].calls.capacity(), 64U);
}

TEST(Reader, SaysWhatAFolderLacks) {
  const ScratchFolder folder;
  const auto none = read_step_recordings(folder / "nothing");
  const auto empty = read_step_recordings(folder.path());
  ASSERT_FALSE(none);
  ASSERT_FALSE(empty);
  EXPECT_EQ(none.error().code, Errc::not_found);
  EXPECT_EQ(empty.error().code, Errc::not_found);
}

}  // namespace
}  // namespace amldist::trace
