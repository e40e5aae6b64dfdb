// A task's flight recorder: a file of the user's, which slurmstepd reads as root when the task has failed.
//
// Input: patches of four bytes for the place, one for the length, and the bytes themselves, on a file that a recorder
// wrote.
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
#include "trace/record/flight_recorder.hpp"
#include "trace/record/record_reader.hpp"

namespace amldist::fuzz::flight_recorder {
namespace {

using namespace trace;

/// A folder of this process's with a recorder in it: /DIR/42.0/2.trace.
class Recorded {
 public:
  Recorded() {
    std::string pattern = "/dev/shm/amldist-fuzz-XXXXXX";
    root_ = {::mkdtemp(pattern.data())};
    const std::string step = root_[0] + "/42.0";
    std::filesystem::create_directory(step);
    auto recorder = trace::FlightRecorder::create(step, {"42.0", 2, 4, 0, "node1"}, 16);
    require(bool{recorder}, "a recorder is made");
    static_cast<void>(recorder->add_communicator(1, 2, 4));
    recorder->complete(recorder->begin(
        {calls::Operation::allreduce, calls::DataType::float32, calls::ReduceOp::sum, 0, 1, 4 << 20, -1}));
    *recorder = trace::FlightRecorder();  // without close() its file stays
    std::ifstream made(step + "/2.trace", std::ios::binary);
    whole_.assign(std::istreambuf_iterator<char>(made), {});
    file_ = FileDescriptor(::open((step + "/2.trace").c_str(), O_RDWR | O_CLOEXEC));
    require(file_ && !whole_.empty(), "the recorder's file is there");
  }
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;
  ~Recorded() {
    std::error_code ignored;
    std::filesystem::remove_all(root_[0], ignored);
  }

  void write(const std::string& content) const {
    require(::ftruncate(file_.get(), 0) == 0, "the file can be cut");
    require(::pwrite(file_.get(), content.data(), content.size(), 0) == static_cast<ssize_t>(content.size()),
            "the file can be written");
  }
  [[nodiscard]] const std::string& whole() const noexcept { return whole_; }
  [[nodiscard]] const std::array<std::string, 1>& roots() const noexcept { return root_; }

 private:
  std::array<std::string, 1> root_;
  std::string whole_;
  FileDescriptor file_;
};

}  // namespace

const std::string_view separator = "";

void try_input(std::string_view input) {
  static const Recorded recorded;
  std::string content = recorded.whole();
  for (Input patches(input); !patches.ended();) {
    const std::size_t place = patches.number(static_cast<std::uint32_t>(content.size()));
    const std::size_t length = patches.byte();
    if (length == 0) content.resize(place);  // cut off
    for (std::size_t at = place; at < std::min(place + length, content.size()); ++at) {
      content[at] = static_cast<char>(patches.byte());
    }
  }
  recorded.write(content);
  constexpr std::size_t most_bytes = std::size_t{64} << 20;
  const auto read = within(most_bytes, [] { return trace::recordings_of(recorded.roots(), ::geteuid(), "42.0", 2); });
  for (const trace::Recording& each : read)
    require(!each.wrong || each.wrong->rank.value_or(0) < each.size, "whose call is wrong is in the step");
  const auto said = within(most_bytes, [&] { return trace::last_call_of(read); });
  require(!said || trace::is_last_call(*said), "what srun is told is of our own words");
}

}  // namespace amldist::fuzz::flight_recorder
