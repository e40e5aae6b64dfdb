// The flight recorder: every call on a communicator leaves a line in a mapped file, which outlives a killed process.
//
//   auto recorder = FlightRecorder::create(place, {"42.0", rank, size, local_rank, host});
//   const auto world = recorder->add_communicator(0, rank, size);
//   const auto ticket = recorder->begin({Operation::allreduce, type, op, world, sequence, bytes});
//   ... the work ...
//   recorder->complete(ticket);
//
// Writing costs two readings of the time-stamp counter and a cache line: no system call, no lock, no allocation. All
// members but create(), add_communicator() and close() may be called from several threads at once. The file format is
// in recorder_format.hpp; recorder_reader.hpp reads it; recorder_place.hpp says where files lie.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "collective/calls/data_type.hpp"
#include "core/result.hpp"
#include "os/file_descriptor.hpp"
#include "os/tick_clock.hpp"

namespace amldist::collective {

namespace recorder_format {
struct RecorderHeader;
struct CommunicatorSlot;
struct RecordedEntry;
enum class State : std::uint8_t;
}  // namespace recorder_format

/// Whose calls a file holds.
struct RecorderOwner {
  std::string job;  ///< name of the step, the same for all its processes: "JOBID.STEP"
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::uint32_t local_rank = 0;
  std::string host;
};

/// One call, as its caller knows it when it begins.
struct RecordedCall {
  Operation operation = Operation::none;
  DataType type = DataType::uint8;
  ReduceOp reduction = ReduceOp::sum;
  std::uint32_t communicator = 0;  ///< as add_communicator() gave it
  std::uint64_t sequence = 0;      ///< of this call on its communicator, from 1; 0: not counted
  std::uint64_t bytes = 0;         ///< of this rank's contribution or, where it has none, of what it gets
  std::int32_t peer = -1;          ///< root or partner in the communicator
};

/// Owns one mapped file. Move-only. A default-constructed one is off: every member does nothing.
class FlightRecorder {
 public:
  using Ticket = std::uint64_t;  ///< names a recorded call; 0: none, and then nothing is written

  static constexpr std::uint32_t default_capacity = 4096;  ///< calls that a file remembers: 256 KiB

  FlightRecorder() = default;
  FlightRecorder(FlightRecorder&& other) noexcept;
  FlightRecorder& operator=(FlightRecorder&& other) noexcept;
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;
  /// Keeps the file: whoever ends without close(well) has something to tell.
  ~FlightRecorder();

  /// Creates `FOLDER/RANK.trace` (mode 0600) for this process. `folder` exists and is the user's own: see
  /// recorder_place.hpp. A file that a dead process of this rank left there is replaced; that of a living one is an
  /// error. All pages are reserved at once, so a full file system is an error here and never a SIGBUS later. `capacity`
  /// becomes a power of two within the format's limits.
  [[nodiscard]] static Result<FlightRecorder> create(const std::string& folder, const RecorderOwner& owner,
                                                     std::uint32_t capacity = default_capacity);

  [[nodiscard]] bool on() const noexcept { return header_ != nullptr; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  /// Gives a communicator a line of its own. `id` is the same on every member; `parent` is the slot that was split.
  /// When all slots are taken, those of closed communicators are used again, and then the last one is shared.
  std::uint32_t add_communicator(std::uint64_t id, std::uint32_t rank, std::uint32_t size, std::string_view name = {},
                                 std::uint32_t parent = 0) noexcept;
  void close_communicator(std::uint32_t slot) noexcept;

  /// A call that starts later (asynchronous): follow with start(), then complete() or fail().
  Ticket enqueue(const RecordedCall& call) noexcept;
  /// A call that starts now, or started at `now`.
  Ticket begin(const RecordedCall& call) noexcept { return begin(call, clock_.now()); }
  Ticket begin(const RecordedCall& call, std::uint64_t now) noexcept;
  void start(Ticket ticket) noexcept;
  void complete(Ticket ticket) noexcept;
  /// `status`: the negative amldist_status that the caller gets.
  void fail(Ticket ticket, int status) noexcept;

  /// The watchdog's heartbeat, about once a second: tells readers that the process lives and how ticks become time.
  void tick() noexcept;
  /// What the watchdog found, one sentence; a later one replaces it.
  void note(std::string_view sentence) noexcept;

  enum class Ending {
    well,    ///< nothing to tell: the file is removed, and its folder when it is the last in it
    failed,  ///< the file is kept
  };
  /// Ends the recording. In a process that was forked after create() it only unmaps: the file is the parent's.
  void close(Ending ending) noexcept;

 private:
  Ticket write(const RecordedCall& call, recorder_format::State state, std::uint64_t now) noexcept;
  [[nodiscard]] recorder_format::RecordedEntry* entry_of(Ticket ticket) const noexcept;
  void unmap() noexcept;

  recorder_format::RecorderHeader* header_ = nullptr;
  recorder_format::CommunicatorSlot* communicators_ = nullptr;
  recorder_format::RecordedEntry* entries_ = nullptr;
  std::uint32_t mask_ = 0;
  TickClock clock_;
  FileDescriptor file_;  ///< holds the lock that says: the writer lives
  std::int32_t pid_ = 0;
  std::string path_;
};

}  // namespace amldist::collective
