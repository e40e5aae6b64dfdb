// The file format of the flight recorder, byte by byte. Readers must not trust its content.
//
//   offset 0       RecorderHeader      4096 bytes   who writes, since when, and how ticks become time
//   offset 4096    CommunicatorSlot    256 x 128    one slot per communicator: how far this rank has come
//   offset 36864   members             8192 x 4     ranks of the world that no slot could give as a row of numbers
//   offset 69632   RecordedEntry       N x 64       ring: call number t (from 1) lies in slot (t - 1) % N
//   behind it      call sites          N x 8        of MPI only: where in the process's memory each of them was called from
//
// A process may have several files: one per source of records, which are libamldist itself, MPI, NCCL and PyTorch. The
// ids of their communicators tell them apart.
//
// Times of MPI's calls are exact if several threads make them, and for the first 500 calls or so in each tick of the
// kernel's clock (1 to 10 ms). Of further calls in that tick the beginning may be recorded too early, by less than a
// tick; a call that ends in the next tick is recorded without a length; any other end is exact.
//
// The end of a short call of libamldist within a node is the time when it last looked for another rank in vain. A call
// that found everything at its first look has no length. What such calls copy afterwards, usually in less than a
// microsecond, is left out. After the first 1000 or so of them in a tick, a call that waits is recorded from its first
// look in vain, and one that does not wait may be recorded up to a tick too early, even before the end of the previous
// call. All other times of libamldist are exact.
//
// `enqueued` and `started` are equal for a call that begins at once, and differ for a call that was posted first.
//
// Numbers are in the byte order of the machine that wrote the file; the magic shows it. Texts are NUL-terminated and
// untrusted. A later version may append to the header's spare room; any other change gets a new version number.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "calls/call.hpp"

namespace amldist::trace::recorder_format {

inline constexpr std::uint64_t magic = 0x3130'5246'444c'4d41;  ///< "AMLDFR01" in little-endian order
inline constexpr std::uint32_t version = 2;
inline constexpr std::uint32_t communicator_slots = 256;
/// The slot number of a communicator that has no slot. Its calls are recorded, but not judged.
inline constexpr std::uint32_t no_slot = 0xffff'ffff;
/// The id under which all communicators without a slot are summed up.
inline constexpr std::uint64_t unjudged_id = ~std::uint64_t{0};
inline constexpr std::uint32_t member_pool = 8192;
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
  none = 0,     ///< the process runs, or died before it could write
  failed = 1,   ///< it closed the recorder after an error; the file is kept
  well = 2,     ///< it closed the recorder; the file is about to be removed
  aborted = 3,  ///< it asked for the end of all ranks (MPI_Abort); the file is kept
};

/// A call that does not match those of others, which failed because of it.
struct WrongCall {
  std::optional<std::uint32_t> rank;  ///< of the step: whose call it is; nullopt: several ranks', or one of several

  friend bool operator==(const WrongCall&, const WrongCall&) = default;
};

inline constexpr std::uint32_t wrong_of_several = 0xffff'ffff;

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
      latest_ticks;  ///< second point of the clock; the watchdog thread updates it as a heartbeat
  std::atomic<std::uint64_t> latest_realtime_ns;
  std::atomic<std::uint64_t> recorded;  ///< calls so far; the newest entry has this ticket
  std::array<char, 128> job;            ///< "JOBID.STEP", or another name of the step
  std::array<char, 256> host;
  std::atomic<std::uint32_t> note_length;
  std::array<char, 512> note;   ///< why a call failed, one sentence
  std::array<char, 16> source;  ///< "amldist", "mpi", "nccl", "torch"
  std::uint32_t members_offset;
  std::atomic<std::uint32_t> stacks_wanted;  ///< a process that wants the stacks of this one adds 1
  std::atomic<std::uint32_t>
      stacks_given;  ///< the number of the request that RANK.SOURCE.stack beside this file answers
  /// CLOCK_MONOTONIC of the moment `created`. Later times continue the calendar of that moment by this clock, so that
  /// none jumps when the time of day is set.
  std::uint64_t created_monotonic_ns;
  std::uint64_t boot;                     ///< this_boot() of the writer; 0 in files of older writers
  std::uint32_t sites_offset;             ///< of the call sites; 0 if the file has no call sites
  std::atomic<std::uint32_t> wrong_call;  ///< WrongCall that `note` tells of: 1 + rank, or wrong_of_several; 0: no call
  std::atomic<std::uint64_t> noted;       ///< `recorded` when `note` was written
};

/// How the members of a communicator are given as ranks of the world.
enum class Members : std::uint32_t {
  unknown = 0,
  row = 1,   ///< first, first + stride, first + 2 * stride, ...
  pool = 2,  ///< `size` numbers in the pool, from number `first` on
};

/// One communicator as this process sees it. `size` 0: the slot is free.
struct CommunicatorSlot {                // NOLINT(cppcoreguidelines-pro-type-member-init): zero wherever it is made
  std::uint64_t id;                      ///< the same on every member
  std::uint32_t rank;                    ///< rank of this process in it
  std::atomic<std::uint32_t> size;       ///< members
  std::atomic<std::uint64_t> entered;    ///< sequence of the newest collective call
  std::atomic<std::uint64_t> completed;  ///< sequence of the newest collective call that succeeded
  std::atomic<std::uint32_t> closed;     ///< 1: the process has closed it
  std::uint32_t parent;                  ///< slot of the communicator that was split; its own number for the first
  Members members;
  std::uint32_t first;  ///< see Members
  std::int32_t stride;
  /// The low 32 bits of the newest ticket when the communicator got this slot: calls up to it belong to an earlier
  /// communicator.
  std::uint32_t since;
  std::array<char, 72> name;  ///< for people; may be empty
};

/// Operations of other libraries that libamldist does not have. Numbers from 128 on concern all members, those from 192
/// on two of them. Only add new ones.
namespace other {
inline constexpr calls::Operation gatherv{128};
inline constexpr calls::Operation scatterv{129};
inline constexpr calls::Operation scan{130};
inline constexpr calls::Operation exscan{131};
inline constexpr calls::Operation alltoallw{132};
inline constexpr calls::Operation reduce_scatterv{133};
inline constexpr calls::Operation neighbor{134};   ///< a collective over a topology
inline constexpr calls::Operation create{135};     ///< a communicator is made, by duplicate, split or group
inline constexpr calls::Operation one_sided{136};  ///< a window or a file, which all members open or close
inline constexpr calls::Operation prepare{
    137};  ///< a persistent collective call; its starts have a communicator of their own
inline constexpr calls::Operation file_io{138};  ///< a call of all members that opened a file
inline constexpr calls::Operation window{139};   ///< a call of all members of a window for one-sided access
inline constexpr calls::Operation sendrecv{192};
inline constexpr calls::Operation probe{193};
}  // namespace other

/// Tags from here on share their numbers: two different ones rarely have the same.
inline constexpr std::uint16_t first_shared_tag = 0x8000;
/// A tag that matches any other.
inline constexpr std::uint16_t any_tag = 0xffff;
/// A peer that may be any member.
inline constexpr std::int32_t any_peer = -2;

/// A tag of a message as it is recorded.
[[nodiscard]] constexpr std::uint16_t short_tag(std::uint32_t tag) noexcept {
  if (tag < first_shared_tag) return static_cast<std::uint16_t>(tag);
  constexpr std::uint32_t golden = 0x9e3779b9;  // Knuth's multiplicative hash
  constexpr int to_15_bits = 17;
  const std::uint32_t mixed = first_shared_tag | ((tag * golden) >> to_15_bits);
  return static_cast<std::uint16_t>(mixed < any_tag ? mixed : any_tag - 1);
}

/// That of one of libamldist's calls; 0 without one.
[[nodiscard]] constexpr std::uint16_t tag_of(const calls::Call& call) noexcept {
  return call.tag < 0 || !is_point_to_point(call.operation) ? std::uint16_t{0}
                                                            : short_tag(static_cast<std::uint32_t>(call.tag));
}

/// The root or peer of one of libamldist's calls; -1: it has none.
[[nodiscard]] constexpr std::int32_t peer_of(const calls::Call& call) noexcept {
  if (!is_point_to_point(call.operation)) return has_root(call.operation) ? call.root : -1;
  const bool is_from_any = call.operation == calls::Operation::recv && call.root == calls::Call::any_source;
  return is_from_any ? any_peer : call.root;
}

/// Whether all members make this call. A send or receive concerns two of them.
[[nodiscard]] constexpr bool is_collective(calls::Operation operation) noexcept {
  constexpr std::uint8_t first_of_two = 192;
  return operation != calls::Operation::none && operation != calls::Operation::send &&
         operation != calls::Operation::recv && static_cast<std::uint8_t>(operation) < first_of_two;
}

/// A call that is `enqueued` but has the time `started` is one for which the program waits by polling, as long as the
/// header's second point of the clock is at most a second old.
enum class State : std::uint8_t { empty = 0, enqueued = 1, started = 2, completed = 3, failed = 4 };

/// Status of a call of MPI that failed because a message was longer than its receiver takes. Other errors have -1.
inline constexpr std::int16_t too_long = -1000;

struct RecordedEntry {  // NOLINT(cppcoreguidelines-pro-type-member-init): zero wherever it is made
  std::atomic<std::uint64_t>
      ticket;  ///< 0 while the slot is being written; a reader reads it before and after the fields
  std::atomic<std::uint64_t> sequence;  ///< of the call on its communicator, from 1; the same on every member
  std::uint64_t bytes;                  ///< size of this rank's input or, if it has none, of its output
  std::uint64_t enqueued;               ///< ticks
  std::atomic<std::uint64_t> started;
  std::atomic<std::uint64_t> ended;
  std::atomic<std::uint32_t> communicator;  ///< slot number
  std::int32_t peer;                        ///< root or peer, a rank of the communicator; -1: none
  std::int16_t status;                      ///< of a call that failed: its amldist_status; MPI's: see too_long
  std::atomic<std::uint8_t> state;          ///< State
  std::uint8_t operation;                   ///< Operation
  std::uint8_t type;                        ///< DataType
  std::uint8_t reduction;                   ///< ReduceOp
  std::uint16_t tag;  ///< of a message (any_tag: any); of all members' call, function_number() or 0
};

inline constexpr std::uint32_t communicators_offset = 4096;
inline constexpr std::uint32_t members_offset = communicators_offset + communicator_slots * 128;
inline constexpr std::uint32_t entries_offset = members_offset + member_pool * 4;

/// Where the call sites of a ring begin.
[[nodiscard]] constexpr std::uint32_t sites_offset_of(std::uint32_t capacity) noexcept {
  return entries_offset + capacity * std::uint32_t{sizeof(RecordedEntry)};
}

static_assert(sizeof(RecordedEntry) == 64 && offsetof(RecordedEntry, communicator) == 48);
static_assert(sizeof(CommunicatorSlot) == 128 && offsetof(CommunicatorSlot, entered) == 16);
static_assert(sizeof(RecorderHeader) <= communicators_offset && offsetof(RecorderHeader, job) == 96);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint8_t>::is_always_lock_free);

}  // namespace amldist::trace::recorder_format
