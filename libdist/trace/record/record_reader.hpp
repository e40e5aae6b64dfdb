// Reads flight recorders of running, stopped and dead processes. The files may be damaged or forged.
//
// A file is read with pread(2) and never mapped, because its writer may truncate it meanwhile. Symbolic links are never
// followed, and the format's limits hold. Everything read is checked or clamped, and texts come out printable.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text/result.hpp"
#include "calls/data_type.hpp"
#include "trace/record/member_ranks.hpp"
#include "trace/record/process_activity.hpp"
#include "trace/record/record_format.hpp"

namespace amldist::trace {

/// Whether a rank has made its call after the same calls before (diagnosis/habit.hpp). The later ones weigh more.
enum class Habit : std::uint8_t {
  unknown,
  broken,   ///< it made another call then
  resized,  ///< it made the same call, of another size or with another root
  kept,
};

/// One call as its file records it. Times are nanoseconds since 1970 on the clock of the writer's host; 0: not yet.
struct CallRecord {
  std::uint64_t ticket = 0;  ///< from 1, in the order in which the process made its calls
  std::uint64_t sequence = 0;
  std::uint64_t bytes = 0;
  std::int64_t enqueued_ns = 0;
  std::int64_t started_ns = 0;
  std::int64_t ended_ns = 0;
  std::uint32_t communicator = 0;  ///< CommunicatorRecord::slot; may be invalid
  std::int32_t peer = -1;
  std::uint16_t tag = 0;
  std::int32_t status = 0;
  recorder_format::State state = recorder_format::State::empty;
  calls::Operation operation = calls::Operation::none;
  calls::DataType type = calls::DataType::uint8;  ///< may be an invalid number, as may operation and reduction
  calls::ReduceOp reduction = calls::ReduceOp::sum;
  std::uint64_t site = 0;  ///< address in the process to which the call returns; 0: not known
  /// Of all that must be equal on every rank: calls of one number that differ in it are a fault even if they have
  /// ended. 0: not known, as in every file.
  std::uint32_t digest = 0;
  Habit told_habit = Habit::unknown;  ///< in what a node tells: habit_of() this call

  /// When a thread began to wait in it, or when it was posted if no thread waits.
  [[nodiscard]] std::int64_t begin_ns() const noexcept { return started_ns != 0 ? started_ns : enqueued_ns; }
  [[nodiscard]] bool pending() const noexcept {
    return state == recorder_format::State::enqueued || state == recorder_format::State::started;
  }
};

struct CommunicatorRecord {
  std::uint32_t slot = 0;
  std::uint64_t id = 0;
  std::uint32_t rank = 0;  ///< below size
  std::uint32_t size = 1;
  std::uint64_t entered = 0;
  std::uint64_t completed = 0;
  bool closed = false;
  std::string name;
  /// Ranks of the world, in the communicator's order; empty if not known. Their number is `size` unless the file is
  /// forged.
  MemberRanks world_ranks = {};
  std::uint32_t since =
      0;  ///< low 32 bits of the newest ticket when it got its slot; calls up to it belong to another communicator
};

/// The calls of all members that a rank has made, in their order.
struct CallOrder {
  struct One {
    std::uint32_t mark = 0;  ///< the same for the same calls (diagnosis/habit.hpp)
    bool is_custom = false;  ///< the rank makes it between the same two calls again and again

    friend bool operator==(const One&, const One&) = default;
  };
  std::uint64_t newest = 0;  ///< number of the newest one among all that the rank has made
  std::vector<One> calls;    ///< newest first

  friend bool operator==(const CallOrder&, const CallOrder&) = default;
};

/// What is known about the process that wrote a file.
enum class Writer {
  runs,
  stopped,  ///< by a signal or a debugger; only known on its own host
  gone,     ///< dead, or it closed the recorder
  silent,   ///< it does not answer the other ranks: stopped, or its node is gone; only libamldist knows
};

/// In place of a source, in what a node tells of a rank that has no recorder: only its process is known.
inline constexpr std::string_view without_file = "none";

/// The content of one file.
struct Recording {
  std::string path;
  std::string job;
  std::string host;
  std::string source;      ///< whose calls: "amldist", "mpi", "nccl", "torch"; or without_file
  std::string note;        ///< why a call of the process failed; may be empty
  std::uint32_t rank = 0;  ///< below size
  std::uint32_t size = 1;
  std::uint32_t local_rank = 0;
  std::int32_t pid = 0;
  Writer writer = Writer::gone;
  recorder_format::Ending ending = recorder_format::Ending::none;
  bool has_exited = false;  ///< in what a node tells: its process has ended with status 0
  std::int64_t created_ns = 0;
  std::int64_t created_monotonic_ns = 0;                  ///< by this node's clock; 0 if another node wrote it
  std::int64_t latest_ns = 0;                             ///< time of the last heartbeat
  std::uint64_t recorded = 0;                             ///< number of calls; the file has the newest of them
  std::optional<std::size_t> told_breaks = std::nullopt;  ///< in what a node tells: broken_habits() of the rank
  std::optional<CallOrder> told_order = std::nullopt;     ///< in what a node tells: order_of() the rank
  std::optional<ActivityTotals> totals = std::nullopt;    ///< of its process; only in what a node tells
  Activity activity = {};                                 ///< of its process, where totals of two times are known
  std::optional<recorder_format::WrongCall> wrong =
      std::nullopt;         ///< which `note` tells of, unless a later call succeeded
  std::string remark = {};  ///< what else is known of a rank that has not come: a clause that begins with "it"
  std::string place = {};   ///< where its telling call was called from: "train.c:42", "libfoo.so+0x1234"
  std::vector<CommunicatorRecord> communicators;
  /// Oldest first. A call of MPI in which one thread has waited while others went on for a second or more is
  /// `enqueued`.
  std::vector<CallRecord> calls;

  /// False for NCCL, whose host does not say when the device ends a call, and PyTorch, whose hooks see an end late, or
  /// never in a process that is stopped: a rank's newest call stays open.
  [[nodiscard]] bool knows_ends() const noexcept { return source != "nccl" && source != "torch"; }
  /// Slots ascend, so where all up to it are in use this is one look.
  [[nodiscard]] const CommunicatorRecord* communicator(std::uint32_t slot) const noexcept;
  /// The oldest call in which the process waits on a communicator without a slot; nullptr if there is no such call.
  [[nodiscard]] const CallRecord* unjudged_wait() const noexcept;
  /// Whether it may have communicators without a slot.
  [[nodiscard]] bool lacks_slots() const noexcept;
  /// The present time as the writer counts it, which on the writer's own node does not jump.
  [[nodiscard]] std::int64_t present_ns() const noexcept;
  /// How long ago it was created. A job that was requeued gives its steps the same names again, and what an earlier run
  /// left is older than the step.
  [[nodiscard]] std::int64_t age_ms() const noexcept;
};

/// Reads `name` in the open folder `folder` (or AT_FDCWD), at most its `newest` calls; 0: what its header says alone.
[[nodiscard]] Result<Recording> read_recording(int folder, const std::string& name,
                                               std::size_t newest = recorder_format::largest_ring);

/// The recorders of one step, by rank and source, and a sentence for each file that is not a recorder.
struct StepRecordings {
  std::vector<Recording> recordings;
  std::vector<std::string> problems;
};

/// Reads the files *.trace of a folder, each once whatever its names. At most 65,536 files, 4 GiB, and of all together
/// two million calls (64 of each file at least): a sentence says what was left out. Errors: the folder does not exist,
/// cannot be read, or has no such file.
[[nodiscard]] Result<StepRecordings> read_step_recordings(const std::string& folder,
                                                          std::size_t newest = recorder_format::largest_ring);

}  // namespace amldist::trace
