// The flight recorder: records every call on a communicator in a mapped file, which outlives a killed process.
//
//   auto recorder = FlightRecorder::create(place, {"42.0", rank, size, local_rank, host});
//   const auto world = recorder->add_communicator(0, rank, size);
//   const auto ticket = recorder->begin({Operation::allreduce, type, op, world, sequence, bytes});
//   ... the work ...
//   recorder->complete(ticket);
//
// A record costs two readings of the time-stamp counter and one cache line: no system call, no lock, no allocation. All
// members except create(), add_communicator(), one_at_a_time() and close() may be called from several threads at once.
// record_format.hpp defines the file format, record_reader.hpp reads it, record_folder.hpp says where files are.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/os/file_descriptor.hpp"
#include "base/text/result.hpp"
#include "base/time/burst_clock.hpp"
#include "base/time/tick_clock.hpp"
#include "calls/data_type.hpp"
#include "trace/record/record_format.hpp"

namespace amldist::trace {

/// The process whose calls a file holds.
struct RecorderOwner {
  std::string job;  ///< name of the step, the same for all its processes: "JOBID.STEP"
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::uint32_t local_rank = 0;
  std::string host;
  /// The library whose calls are recorded. All but "amldist" have its name in the file's name.
  std::string source = "amldist";
  bool has_sites = false;  ///< whether RecordedCall::site is kept
};

/// A communicator as it is known when it is made.
struct RecordedCommunicator {
  std::uint64_t id = 0;  ///< the same on every member, unique in the step
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::string_view name = {};                       ///< for people
  std::uint32_t parent = 0;                         ///< slot of the communicator that was split
  std::span<const std::uint32_t> world_ranks = {};  ///< of its members, in their order; empty: not known
};

/// One call as it is known when it begins.
struct RecordedCall {
  calls::Operation operation = calls::Operation::none;
  calls::DataType type = calls::DataType::uint8;
  calls::ReduceOp reduction = calls::ReduceOp::sum;
  std::uint32_t communicator = 0;  ///< result of add_communicator()
  std::uint64_t sequence = 0;      ///< number of this call on its communicator, from 1; 0: not counted
  std::uint64_t bytes = 0;         ///< size of this rank's input or, if it has none, of its output
  std::int32_t peer = -1;          ///< root or peer, a rank of the communicator
  std::uint16_t tag = 0;       ///< of a message; of another call of MPI that shares its operation, function_number()
  const void* site = nullptr;  ///< the address to which the call returns
};

/// Owns one mapped file. Move-only. A default-constructed recorder is off: every member does nothing.
class FlightRecorder {
 public:
  using Ticket = std::uint64_t;  ///< identifies a recorded call; 0: nothing was written

  static constexpr std::uint32_t default_capacity = 4096;  ///< calls that a file keeps: 256 KiB

  FlightRecorder() = default;
  FlightRecorder(FlightRecorder&& other) noexcept;
  FlightRecorder& operator=(FlightRecorder&& other) noexcept;
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;
  /// Keeps the file: a process that ends without close(well) may have failed.
  ~FlightRecorder();

  /// Creates `FOLDER/RANK.trace`, or `FOLDER/RANK.SOURCE.trace` for another source (mode 0600), for this process.
  /// `folder` must exist and belong to the user: see record_folder.hpp. A file that a dead process of this rank left
  /// there is replaced; that of a living process is an error. All pages are reserved here, so a full file system is an
  /// error now and not a SIGBUS later. `capacity` is rounded to a power of two within the format's limits.
  [[nodiscard]] static Result<FlightRecorder> create(const std::string& folder, const RecorderOwner& owner,
                                                     std::uint32_t capacity = default_capacity);

  /// Declares that no two threads call a member at once from now on, which makes a record cheaper. Times of calls
  /// beyond 500 in one tick of the kernel's clock are then less exact: see record_format.hpp.
  void one_at_a_time() noexcept { burst_.emplace(); }

  [[nodiscard]] bool on() const noexcept { return header_ != nullptr; }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

  /// Assigns a slot to a communicator. When all slots are in use, slots of closed communicators are reused; after that,
  /// recorder_format::no_slot is returned: calls are still recorded, but not judged.
  std::uint32_t add_communicator(const RecordedCommunicator& communicator) noexcept;
  std::uint32_t add_communicator(std::uint64_t id, std::uint32_t rank, std::uint32_t size, std::string_view name = {},
                                 std::uint32_t parent = 0) noexcept {
    return add_communicator({id, rank, size, name, parent, {}});
  }
  /// For people.
  void rename_communicator(std::uint32_t slot, std::string_view name) noexcept;
  void close_communicator(std::uint32_t slot) noexcept;

  /// Records a call that starts later (asynchronous). Then call start(), then complete() or fail().
  Ticket enqueue(const RecordedCall& call) noexcept;
  /// Records a call that starts now, or that started at `now`.
  Ticket begin(const RecordedCall& call) noexcept;
  Ticket begin(const RecordedCall& call, std::uint64_t now) noexcept;
  /// Records a call that has begun and ended, at these times.
  void record_ended(const RecordedCall& call, std::uint64_t began, std::uint64_t ended) noexcept;
  /// False if the record is gone because the ring has wrapped.
  bool start(Ticket ticket) noexcept;
  /// Records an enqueued call whose record is gone again, as started.
  Ticket start_again(const RecordedCall& call) noexcept;
  /// The program has been waiting for an enqueued call by polling since this moment. A reader believes it as long as
  /// tick() is called every second. False if the record is gone.
  bool poll(Ticket ticket, std::uint64_t since) noexcept;
  /// Records an enqueued call whose record is gone again.
  Ticket enqueue_again(const RecordedCall& call) noexcept;
  /// A started or polled call in which no thread waits any more, though it has not ended.
  void suspend(Ticket ticket) noexcept;
  void complete(Ticket ticket) noexcept;
  /// The same at `now`.
  void complete(Ticket ticket, std::uint64_t now) noexcept;
  /// The same; `began` is when it began, which begin() was told less exactly.
  void complete(Ticket ticket, std::uint64_t began, std::uint64_t ended) noexcept;
  /// `status`: the negative amldist_status that the caller receives.
  void fail(Ticket ticket, int status) noexcept;

  /// Calls so far.
  [[nodiscard]] std::uint64_t recorded() const noexcept;

  /// Heartbeat of the watchdog thread, about once a second: shows that the process is alive and calibrates ticks to
  /// time. A program that polls calls it, too. Does nothing while another thread does it.
  void tick() noexcept;
  /// Stores why a call failed, as one sentence. `wrong`: whose wrong call it names. A later sentence replaces an
  /// earlier one. But until a call succeeds again, one that names a wrong call stays if it is the first: later failures
  /// may follow from it.
  void note(std::string_view sentence, const std::optional<recorder_format::WrongCall>& wrong = {}) noexcept;

  using Ending = recorder_format::Ending;
  /// Ends the recording. In a process forked after create() it only unmaps: the file belongs to the parent. `well`: the
  /// file is removed, and the folder with its last file.
  void close(Ending ending) noexcept;

  /// The same for a process whose calls have failed: whether its file is kept is decided by its exit status. Only with
  /// 0 is the file removed.
  void close_and_keep_after_failure() noexcept;

  /// Says how the process is about to end, while other threads may still record.
  void announce(Ending ending) noexcept;

 private:
  static constexpr std::uint64_t calls_between_ticks = 256;  ///< keeps the clock accurate if nothing calls tick()

  void complete(recorder_format::RecordedEntry& entry, std::uint64_t now) noexcept;
  Ticket write(const RecordedCall& call, recorder_format::State state, std::uint64_t began,
               std::uint64_t ended = 0) noexcept;
  Ticket put_entry(const RecordedCall& call, recorder_format::State state, std::uint64_t began,
                   std::uint64_t ended = 0) noexcept;
  [[nodiscard]] recorder_format::RecordedEntry* entry_of(Ticket ticket) const noexcept;
  [[nodiscard]] std::uint64_t now() noexcept { return burst_ ? burst_->now() : clock_.now(); }
  [[nodiscard]] std::uint64_t end_of(recorder_format::RecordedEntry& entry, Ticket ticket) noexcept;
  [[nodiscard]] Ticket next_ticket() noexcept;
  [[nodiscard]] bool take_room(std::uint32_t slot, std::uint32_t ranks) noexcept;
  void put_members(recorder_format::CommunicatorSlot& slot, std::span<const std::uint32_t> ranks) noexcept;
  [[nodiscard]] bool has_gone_on() const noexcept;
  void unmap() noexcept;

  recorder_format::RecorderHeader* header_ = nullptr;
  recorder_format::CommunicatorSlot* communicators_ = nullptr;
  std::uint32_t* pool_ = nullptr;
  std::uint32_t pool_used_ = 0;
  /// The part of the pool that belongs to a slot, even after its communicator was closed.
  struct PoolRoom {
    std::uint32_t first = 0;
    std::uint32_t ranks = 0;
  };
  std::array<PoolRoom, 256> rooms_{};  ///< one for each of recorder_format::communicator_slots
  recorder_format::RecordedEntry* entries_ = nullptr;
  std::atomic<std::uint64_t>* sites_ = nullptr;  ///< one for each entry; nullptr: they are not kept
  std::uint32_t mask_ = 0;
  std::size_t bytes_ = 0;  ///< of the mapping
  TickClock clock_;
  std::atomic_flag ticks_;           ///< a thread is in tick(); stays with the object that is moved from
  std::optional<BurstClock> burst_;  ///< the clock used if calls come one at a time
  Ticket inexact_ = 0;               ///< the newest call, if its beginning is not exact
  FileDescriptor file_;              ///< holds the lock that shows readers that the writer is alive
  std::int32_t pid_ = 0;
  std::string path_;
};

// ---- defined here, so that short calls of this library inline it ----
inline FlightRecorder::Ticket FlightRecorder::next_ticket() noexcept {
  constexpr auto relaxed = std::memory_order_relaxed;
  if (!burst_) return header_->recorded.fetch_add(1, relaxed) + 1;
  const Ticket ticket = header_->recorded.load(relaxed) + 1;
  header_->recorded.store(ticket, relaxed);
  return ticket;
}

inline FlightRecorder::Ticket FlightRecorder::put_entry(const RecordedCall& call, recorder_format::State state,
                                                        std::uint64_t began, std::uint64_t ended) noexcept {
  using recorder_format::State;
  if (header_ == nullptr) return 0;
  constexpr auto relaxed = std::memory_order_relaxed;
  const Ticket ticket = next_ticket();
  recorder_format::RecordedEntry& entry = entries_[(ticket - 1) & mask_];
  const std::uint32_t slot = call.communicator;
  // Each new field must become visible after the ticket was cleared. Release stores do this; on x86 they are ordinary
  // stores, whereas an atomic exchange of the ticket would drain the store buffer.
  const auto put_after = [](auto& field, auto value) {
    std::atomic_ref(field).store(value, std::memory_order_release);
  };
  entry.ticket.store(0, relaxed);
  entry.sequence.store(call.sequence, std::memory_order_release);
  put_after(entry.bytes, call.bytes);
  put_after(entry.enqueued, began);
  entry.started.store(state != State::enqueued ? began : 0, std::memory_order_release);
  entry.ended.store(ended, std::memory_order_release);
  entry.communicator.store(slot, std::memory_order_release);
  put_after(entry.peer, call.peer);
  put_after(entry.status, std::int16_t{0});
  put_after(entry.operation, static_cast<std::uint8_t>(call.operation));
  put_after(entry.type, static_cast<std::uint8_t>(call.type));
  put_after(entry.reduction, static_cast<std::uint8_t>(call.reduction));
  put_after(entry.tag, call.tag);
  if (sites_ != nullptr)
    sites_[(ticket - 1) & mask_].store(reinterpret_cast<std::uintptr_t>(call.site), std::memory_order_release);
  entry.state.store(static_cast<std::uint8_t>(state), std::memory_order_release);
  entry.ticket.store(ticket, std::memory_order_release);
  if (ticket % calls_between_ticks == 0) tick();
  return ticket;
}

inline FlightRecorder::Ticket FlightRecorder::write(const RecordedCall& call, recorder_format::State state,
                                                    std::uint64_t began, std::uint64_t ended) noexcept {
  const Ticket ticket = put_entry(call, state, began, ended);
  const bool is_counted = ticket != 0 && call.communicator < recorder_format::communicator_slots &&
                          recorder_format::is_collective(call.operation);
  if (!is_counted) return ticket;
  auto& slot = communicators_[call.communicator];
  slot.entered.store(call.sequence, std::memory_order_relaxed);
  if (state == recorder_format::State::completed) slot.completed.store(call.sequence, std::memory_order_relaxed);
  return ticket;
}

inline FlightRecorder::Ticket FlightRecorder::begin(const RecordedCall& call, std::uint64_t now) noexcept {
  return write(call, recorder_format::State::started, now);
}

inline void FlightRecorder::record_ended(const RecordedCall& call, std::uint64_t began, std::uint64_t ended) noexcept {
  write(call, recorder_format::State::completed, began, ended);
}

/// nullptr if the ring has wrapped: the entry belongs to another call now.
inline recorder_format::RecordedEntry* FlightRecorder::entry_of(Ticket ticket) const noexcept {
  if (header_ == nullptr || ticket == 0) return nullptr;
  recorder_format::RecordedEntry& entry = entries_[(ticket - 1) & mask_];
  return entry.ticket.load(std::memory_order_relaxed) == ticket ? &entry : nullptr;
}

inline void FlightRecorder::complete(recorder_format::RecordedEntry& entry, std::uint64_t now) noexcept {
  constexpr auto relaxed = std::memory_order_relaxed;
  entry.ended.store(now, relaxed);
  entry.state.store(static_cast<std::uint8_t>(recorder_format::State::completed), std::memory_order_release);
  // The ring may have wrapped, and another thread may be writing a later call into this entry.
  if (!recorder_format::is_collective(calls::Operation{std::atomic_ref(entry.operation).load(relaxed)})) return;
  const std::uint32_t slot = entry.communicator.load(relaxed);
  if (slot < recorder_format::communicator_slots)
    communicators_[slot].completed.store(entry.sequence.load(relaxed), relaxed);
}

inline void FlightRecorder::complete(Ticket ticket, std::uint64_t began, std::uint64_t ended) noexcept {
  recorder_format::RecordedEntry* const entry = entry_of(ticket);
  if (entry == nullptr) return;
  std::atomic_ref(entry->enqueued).store(began, std::memory_order_relaxed);
  entry->started.store(began, std::memory_order_relaxed);
  complete(*entry, ended);
}

inline void FlightRecorder::complete(Ticket ticket, std::uint64_t now) noexcept {
  recorder_format::RecordedEntry* const entry = entry_of(ticket);
  if (entry != nullptr) complete(*entry, now);
}

}  // namespace amldist::trace
