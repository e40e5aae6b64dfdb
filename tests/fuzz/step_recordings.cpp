// The flight recorders of a step, which `aml-dist trace` reads: files that any user may have written.
//
// Input: patches of one byte for the file, four for the place, one for the length, and the bytes themselves, on files
// that three ranks' recorders wrote. They hold calls that have ended, waiting ones, and pending messages on a
// communicator that is open and on one that is closed.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/os/file_descriptor.hpp"
#include "fuzz.hpp"
#include "trace/diagnosis/last_call.hpp"
#include "trace/diagnosis/stalls.hpp"
#include "trace/record/flight_recorder.hpp"

namespace amldist::fuzz::step_recordings {
namespace {

using namespace trace;

constexpr std::uint32_t ranks = 3;

void record_calls(trace::FlightRecorder& recorder, std::uint32_t rank) {
  const std::uint32_t world = recorder.add_communicator(1, rank, ranks);
  const std::uint32_t part = recorder.add_communicator(2, rank, ranks, "part", world);
  recorder.complete(
      recorder.begin({calls::Operation::broadcast, calls::DataType::int8, calls::ReduceOp::sum, world, 1, 100, 0}));
  if (rank != 1)
    static_cast<void>(recorder.begin(
        {calls::Operation::allreduce, calls::DataType::float32, calls::ReduceOp::sum, world, 2, 4 << 20, -1}));
  static_cast<void>(
      recorder.enqueue({calls::Operation::recv, calls::DataType::float64, calls::ReduceOp::sum, world, 1, 80, 1}));
  static_cast<void>(
      recorder.begin({calls::Operation::send, calls::DataType::float64, calls::ReduceOp::sum, part, 1, 80, 2}));
  recorder.fail(
      recorder.begin({calls::Operation::barrier, calls::DataType::uint8, calls::ReduceOp::sum, part, 1, 0, -1}), -8);
  if (rank != 2) recorder.close_communicator(part);
  recorder.note("allreduce #2: rank 1 (local 0) on node1 has not called it");
}

/// A rank's file as its recorder left it, to be written over.
class File {
 public:
  File(const std::string& step, std::uint32_t rank) {
    auto recorder = trace::FlightRecorder::create(step, {"42.0", rank, ranks, 0, "node1"}, 16);
    require(bool{recorder}, "a recorder is made");
    record_calls(*recorder, rank);
    *recorder = trace::FlightRecorder();  // without close() its file stays
    const std::string path = step + "/" + std::to_string(rank) + ".trace";
    std::ifstream made(path, std::ios::binary);
    whole_.assign(std::istreambuf_iterator<char>(made), {});
    file_ = FileDescriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    require(file_ && !whole_.empty(), "the recorder's file is there");
  }

  [[nodiscard]] const std::string& whole() const noexcept { return whole_; }
  void write(const std::string& content) const {
    require(::ftruncate(file_.get(), 0) == 0, "the file can be cut");
    require(::pwrite(file_.get(), content.data(), content.size(), 0) == static_cast<ssize_t>(content.size()),
            "the file can be written");
  }

 private:
  std::string whole_;
  FileDescriptor file_;
};

/// The step's folder.
class Folder {
 public:
  Folder() {
    std::string pattern = "/dev/shm/amldist-fuzz-XXXXXX";
    path_ = ::mkdtemp(pattern.data());
    for (std::uint32_t rank = 0; rank < ranks; ++rank) files_.emplace_back(path_, rank);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  [[nodiscard]] const std::vector<File>& files() const noexcept { return files_; }

 private:
  std::string path_;
  std::vector<File> files_;
};

void patch(std::string& content, Input& patches) {
  const std::size_t place = patches.number(static_cast<std::uint32_t>(content.size()));
  const std::size_t length = patches.byte();
  if (length == 0) content.resize(place);  // cut off
  for (std::size_t at = place; at < std::min(place + length, content.size()); ++at) {
    content[at] = static_cast<char>(patches.byte());
  }
}

/// Everything that `aml-dist trace` says of a step.
bool tell(const std::string& folder) {
  const auto step = trace::read_step_recordings(folder);
  if (!step) {
    require_sentence(step.error().message);
    return false;
  }
  for (const std::string& problem : step->problems) require_sentence(problem);
  for (const trace::Recording& recording : step->recordings) {
    require(recording.rank < recording.size, "a rank is below its size");
    for (const trace::CallRecord& call : recording.calls) require_sentence(describe_call(call));
    const auto last = describe_last_call(recording);
    require(!last || trace::is_last_call(*last), "the last call is of our own words");
  }
  for (const trace::Stall& stall : find_stalls(step->recordings)) {
    require(!stall.missing.empty(), "somebody keeps the others waiting");
    for (const trace::MissingRank& missing : stall.missing)
      require(!sentence(stall, missing).empty(), "a missing rank is named");
    require(!sentence(stall).empty(), "a stall is told");
  }
  return true;
}

}  // namespace

const std::string_view separator = "";

void try_input(std::string_view input) {
  static const Folder folder;
  std::array<std::string, ranks> contents;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) contents[rank] = folder.files()[rank].whole();
  for (Input patches(input); !patches.ended();) patch(contents[patches.byte() % ranks], patches);
  for (std::uint32_t rank = 0; rank < ranks; ++rank) folder.files()[rank].write(contents[rank]);
  constexpr std::size_t most_bytes = std::size_t{256} << 20;
  static_cast<void>(within(most_bytes, [] { return tell(folder.path()); }));
}

}  // namespace amldist::fuzz::step_recordings
