// The file format of the flight recorder, byte by byte. Readers must not trust its content.
//
//   offset 0      RecorderHeader      4096 bytes   who writes, since when, and how ticks become time
//   offset 4096   CommunicatorSlot    64 x 64      one slot per communicator: how far this rank has come
//   offset 8192   RecordedEntry       N x 64       ring: call number t (from 1) lies in slot (t - 1) % N
//
// Numbers are in the byte order of the machine that wrote the file; the magic shows it. Texts are NUL-terminated and
// untrusted. A later version may append to the header's spare room; any other change gets a new version number.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "collective/calls/data_type.hpp"

namespace amldist::collective::recorder_format {

inline constexpr std::uint64_t magic = 0x3130'5246'444c'4d41;  ///< "AMLDFR01" in little-endian order
inline constexpr std::uint32_t version = 1;
inline constexpr std::uint32_t communicator_slots = 64;
inline constexpr std::uint32_t smallest_ring = 16;
inline constexpr std::uint32_t largest_ring = 1U << 16;

/// The same instant on the tick clock and on the calendar.
struct ClockPoint {
  std::uint64_t ticks;
  std::uint64_t realtime_ns;  ///< since 1970
};

/// How the process ended, as far as it could record it. While it lives it holds a POSIX lock on the whole file:
/// children do not inherit it, and it ends with the process.
enum class Ending : std::uint32_t {
  none = 0,    ///< the process runs, or died before it could write
  failed = 1,  ///< it closed the recorder after an error; the file is kept
  well = 2,    ///< it closed the recorder; the file is about to be removed
};

struct RecorderHeader {
  std::uint64_t magic;
  std::uint32_t version;
  std::uint32_t header_bytes;  ///< offset of the communicators
  std::uint32_t entries_offset;
  std::uint32_t entry_bytes;
  std::uint32_t capacity;  ///< entries of the ring, a power of two
  std::uint32_t rank;
  std::uint32_t size;
  std::uint32_t local_rank;
  std::int32_t pid;
  std::atomic<std::uint32_t> ending;
  std::uint64_t reserved;
  ClockPoint created;
  std::atomic<std::uint64_t>
      latest_ticks;  ///< second point of the clock; the watchdog thread updates it, as a heartbeat
  std::atomic<std::uint64_t> latest_realtime_ns;
  std::atomic<std::uint64_t> recorded;  ///< calls so far; the newest entry has this ticket
  std::array<char, 128> job;            ///< "JOBID.STEP", or another name of the step
  std::array<char, 256> host;
  std::atomic<std::uint32_t> note_length;
  std::array<char, 512> note;  ///< what the watchdog found, one sentence
};

/// One communicator as this process sees it. `size` 0: the slot is free.
struct CommunicatorSlot {
  std::uint64_t id;                      ///< the same on every member
  std::uint32_t rank;                    ///< of this process in it
  std::atomic<std::uint32_t> size;       ///< members
  std::atomic<std::uint64_t> entered;    ///< sequence of the newest collective call
  std::atomic<std::uint64_t> completed;  ///< sequence of the newest collective call that succeeded
  std::atomic<std::uint32_t> closed;     ///< 1: the process has closed it
  std::uint32_t parent;                  ///< slot of the communicator that was split; its own number for the first
  std::array<char, 24> name;             ///< for people; may be empty
};

/// Whether all members make this call. A send or receive concerns two of them.
[[nodiscard]] constexpr bool is_collective(Operation operation) noexcept {
  return operation != Operation::none && operation != Operation::send && operation != Operation::recv;
}

enum class State : std::uint8_t { empty = 0, enqueued = 1, started = 2, completed = 3, failed = 4 };

struct RecordedEntry {
  std::atomic<std::uint64_t>
      ticket;  ///< 0 while the slot is being written; a reader reads it before and after the fields
  std::atomic<std::uint64_t> sequence;  ///< of the call on its communicator, from 1; the same on every member
  std::uint64_t bytes;                  ///< size of this rank's input or, if it has none, of its output
  std::uint64_t enqueued;               ///< ticks
  std::atomic<std::uint64_t> started;
  std::atomic<std::uint64_t> ended;
  std::atomic<std::uint32_t> communicator;  ///< slot number
  std::int32_t peer;                        ///< root or peer, a rank of the communicator; -1: none
  std::int16_t status;                      ///< amldist_status of a call that failed
  std::atomic<std::uint8_t> state;          ///< State
  std::uint8_t operation;                   ///< Operation
  std::uint8_t type;                        ///< DataType
  std::uint8_t reduction;                   ///< ReduceOp
  std::uint16_t flags;                      ///< unused
};

inline constexpr std::uint32_t communicators_offset = 4096;
inline constexpr std::uint32_t entries_offset = communicators_offset + communicator_slots * 64;

static_assert(sizeof(RecordedEntry) == 64 && offsetof(RecordedEntry, communicator) == 48);
static_assert(sizeof(CommunicatorSlot) == 64 && offsetof(CommunicatorSlot, entered) == 16);
static_assert(sizeof(RecorderHeader) <= communicators_offset && offsetof(RecorderHeader, job) == 96);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint8_t>::is_always_lock_free);

}  // namespace amldist::collective::recorder_format
