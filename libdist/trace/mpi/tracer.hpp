// Records the MPI calls of an unmodified program. One per process, found through tracer().
//
// The wrappers of MPI's calls (wrapped_calls.cpp) record what the program calls. A call that MPI makes inside another
// one is not recorded. Nothing here throws: without memory or a recorder, calls pass through.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <vector>

#include "trace/mpi/abi.hpp"
#include "trace/mpi/poll_meter.hpp"
#include "trace/record/flight_recorder.hpp"
#include "trace/record/mpi_functions.hpp"
#include "trace/record/record_format.hpp"

namespace amldist::trace::mpi {

using calls::DataType;
using calls::Operation;
using calls::ReduceOp;
using trace::FlightRecorder;
namespace other = trace::recorder_format::other;

/// A communicator as this process sees it. Lives until MPI deletes it; kept as MPI's attribute of the communicator.
struct Communicator {
  std::uint32_t slot = 0;
  bool is_recorded = false;  ///< false for a communicator of one process
  bool is_between = false;   ///< has two groups, which count as one: the one with the smaller first rank comes first
  std::uint64_t id = 0;      ///< 0: it has processes that are not of the world; its calls are recorded, but not judged
  std::uint32_t rank = 0;
  std::int32_t peers_at = 0;  ///< where the ranks that messages name begin: those of the other group
  std::vector<std::uint32_t> world_ranks;
  std::atomic<std::uint64_t> sequence{0};
};

/// What a thread keeps from call to call. Finding it takes time: once in a call.
struct ThreadState {
  int depth = 0;  ///< calls inside a recorded call are made by MPI itself
  MPI_Comm last_comm{};
  Communicator* last = nullptr;  ///< of last_comm, unless a communicator was deleted since
  std::uint64_t deletions = 0;
};
[[nodiscard]] ThreadState& this_thread() noexcept;
[[nodiscard]] inline int& depth() noexcept { return this_thread().depth; }

class Tracer {
 public:
  /// Whether calls of this libmpi are accepted. They are recorded if the plugin has asked for it, else they pass
  /// through. `unwanted`: no trace, or another interface.
  enum class Use { other_interface = 0, yes = 1, unwanted = 2 };
  Use use(void* libmpi) noexcept;
  [[nodiscard]] bool on() const noexcept { return recorder_.on(); }
  [[nodiscard]] const Abi& abi() const noexcept { return abi_; }
  [[nodiscard]] FlightRecorder& recorder() noexcept { return recorder_; }
  [[nodiscard]] void* libmpi() const noexcept { return libmpi_; }

  /// Before MPI_Init: opens the recorder and records that this process is in MPI_Init.
  FlightRecorder::Ticket initializing() noexcept;
  /// After it: MPI's world must be Slurm's step, or nothing is recorded.
  void initialized(FlightRecorder::Ticket ticket, int status) noexcept;
  /// A program without MPI_Init, whose communicators no world numbers: it is not recorded, and says so.
  void opening_session() noexcept;
  FlightRecorder::Ticket finalizing() noexcept;
  void aborting() noexcept;
  void finalized(FlightRecorder::Ticket ticket, int status) noexcept;

  /// nullptr if its calls are not recorded.
  Communicator* find(MPI_Comm comm, ThreadState& thread) noexcept {
    const std::uint64_t deletions = deletions_.load(std::memory_order_acquire);
    const bool is_last = thread.last != nullptr && thread.last_comm == comm && thread.deletions == deletions;
    return is_last ? thread.last : find_attribute(comm, thread, deletions);
  }
  Communicator* find(MPI_Comm comm) noexcept { return find(comm, this_thread()); }
  /// The program has given it a name.
  void rename(MPI_Comm comm, std::string_view name) noexcept;
  /// The communicators that a call returns to its callers. `id`: of the call, the same for all of them.
  void add(MPI_Comm made, std::uint64_t id) noexcept;
  /// The id of the communicator that this call returns.
  [[nodiscard]] static std::uint64_t id_of_made(const Communicator& parent, std::uint64_t sequence) noexcept;
  /// The result of MPI_Intercomm_create on two groups.
  void add_joined(MPI_Comm made) noexcept;

  /// A file or window that a call on a communicator has opened. Its own calls are numbered and judged separately.
  void opened(std::uintptr_t handle, const Communicator& by, std::uint64_t sequence, std::string_view what) noexcept;
  [[nodiscard]] Communicator* find_opened(std::uintptr_t handle) noexcept;
  void closed(std::uintptr_t handle) noexcept;

  /// MPI_Comm_create_group is a call of the members of one group. It is recorded and judged as the only call on a
  /// communicator of its own.
  struct GroupCall {
    std::uint64_t id = 0;  ///< of its result; 0: it is not recorded
    std::uint32_t slot = 0;
    FlightRecorder::Ticket ticket = 0;
  };
  [[nodiscard]] GroupCall creating(MPI_Comm parent, MPI_Group group, int tag) noexcept;
  void created(const GroupCall& call, int status, MPI_Comm made) noexcept;
  /// Called when MPI deletes it.
  void forget(Communicator* communicator) noexcept;

  /// The number of the next call that all members make.
  [[nodiscard]] std::uint64_t next_number(Communicator& communicator) const noexcept {
    constexpr auto relaxed = std::memory_order_relaxed;
    if (has_threads_) return communicator.sequence.fetch_add(1, relaxed) + 1;
    const std::uint64_t number = communicator.sequence.load(relaxed) + 1;  // cheaper than an atomic addition
    communicator.sequence.store(number, relaxed);
    return number;
  }

  [[nodiscard]] DataType type_of(MPI_Datatype type) const noexcept {
    // Most programs use one type; the type of an MPI constant is never freed.
    const Abi::Type* const recent = recent_type_.load(std::memory_order_relaxed);
    return recent != nullptr && recent->handle == type ? recent->type : look_up(type);
  }
  [[nodiscard]] ReduceOp op_of(MPI_Op op) const noexcept {
    if (op == MPI_Op{}) return ReduceOp::sum;
    for (const Abi::Op& each : abi_.ops)
      if (each.handle == op) return each.op;
    return unknown_op;
  }
  [[nodiscard]] std::uint64_t bytes_of(std::int64_t count, MPI_Datatype type) const noexcept {
    if (count <= 0) return 0;
    const DataType known = type_of(type);
    return known != unknown_type ? static_cast<std::uint64_t>(count) * calls::size_of(known) : real_bytes(count, type);
  }

  /// A call that was posted and has not been seen to end.
  struct PostedCall {
    FlightRecorder::Ticket ticket = 0;
    FlightRecorder::Ticket known_by = 0;  ///< the ticket with which find_posted() has found it
    trace::RecordedCall call{};
    const MPI_Comm* made = nullptr;  ///< where the communicator that it gives will be
    std::uint64_t id_of_made = 0;
  };
  void remember(MPI_Request request, const PostedCall& posted) noexcept;
  /// Its ticket is 0 if the call is not recorded.
  [[nodiscard]] PostedCall find_posted(MPI_Request request) noexcept;
  /// The call has ended, successfully or not.
  void complete(MPI_Request request, const PostedCall& posted) noexcept;
  void fail(MPI_Request request, const PostedCall& posted, int error) noexcept;
  /// A call of the program's has returned this error. Its recorder then outlives MPI_Finalize, unless the program ends
  /// well all the same: Python calls MPI_Finalize also where an exception ends it.
  void fail(FlightRecorder::Ticket ticket, int error) noexcept;

  /// Called after a test that found nothing. True: the program waits for its requests by polling; call polled() for
  /// each that has not ended, then polls_told(). Only for the thread that called MPI_Init: other threads may only be
  /// driving MPI's progress.
  [[nodiscard]] bool polls_in_vain() noexcept;
  void polled(MPI_Request request, PostedCall posted) noexcept;
  void polls_told() noexcept;
  void poll_found() noexcept {
    if (is_main_thread()) poll_meter_.found_something();
  }
  static constexpr std::size_t most_polled = 64;  ///< reported for one test

  /// The call that a persistent request makes each time it is started, until MPI_Request_free.
  void prepare(MPI_Request request, const trace::RecordedCall& call) noexcept;
  /// The same for a collective call, which was prepared on `parent` with this number. Ranks may start what they have
  /// prepared in any order, so its starts are counted and judged separately.
  void prepare(MPI_Request request, trace::RecordedCall call, const Communicator& parent,
               std::uint64_t sequence) noexcept;
  [[nodiscard]] FlightRecorder::Ticket started(MPI_Request request) noexcept;
  void free(MPI_Request request) noexcept;

 private:
  enum class Origin : std::uint8_t { unknown, group, between };
  [[nodiscard]] bool is_main_thread() const noexcept;
  [[nodiscard]] bool is_spawned() const noexcept;
  Communicator* find_attribute(MPI_Comm comm, ThreadState& thread, std::uint64_t deletions) noexcept;
  [[nodiscard]] DataType look_up(MPI_Datatype type) const noexcept;
  [[nodiscard]] static std::uint64_t real_bytes(std::int64_t count, MPI_Datatype type) noexcept;
  void stop_polls() noexcept;
  void drop(MPI_Request request, const PostedCall& posted) noexcept;
  void find_members(MPI_Comm comm, Communicator& made) const;
  Communicator* add_known(MPI_Comm comm, std::uint64_t id, Origin origin = Origin::unknown) noexcept;
  [[nodiscard]] std::uint64_t next_id(std::span<const std::uint32_t> members, Origin origin, int tag = 0);
  [[nodiscard]] std::vector<std::uint32_t> world_ranks_of(MPI_Comm comm,
                                                          const char* group_of = "PMPI_Comm_group") const;
  [[nodiscard]] std::vector<std::uint32_t> world_ranks_of_group(MPI_Group group) const;
  void start(std::uint32_t rank, std::uint32_t size) noexcept;

  void* libmpi_ = nullptr;
  Abi abi_;
  mutable std::atomic<const Abi::Type*> recent_type_{nullptr};
  FlightRecorder recorder_;
  bool has_threads_ = true;                     ///< several threads may be in MPI at once
  const int* main_depth_ = nullptr;             ///< depth() of the thread that called MPI_Init
  PollMeter poll_meter_;                        ///< of that thread
  std::vector<FlightRecorder::Ticket> polled_;  ///< those recorded as waited for by that thread
  std::uint64_t polled_since_ = 0;              ///< ticks
  std::optional<int> keyval_;                   ///< may be any number: MPICH's are negative
  MPI_Group world_group_{};
  std::atomic<bool> has_session_{false};
  std::atomic<bool> has_failed_{false};      ///< a call of the program's has returned an error
  std::atomic<std::uint64_t> deletions_{0};  ///< of communicators, so that no thread keeps a deleted one
  std::mutex mutex_;                         ///< protects everything below and FlightRecorder::add_communicator()
  std::map<std::uint64_t, std::uint64_t> same_members_;  ///< number of communicators with these members and this origin
  std::map<std::string, std::uint64_t> same_names_;      ///< number of communicators that got this name from us
  std::unordered_map<std::uintptr_t, std::unique_ptr<Communicator>> opened_;
  std::mutex requests_mutex_;
  std::unordered_map<std::uintptr_t, PostedCall> requests_;
  std::unordered_map<std::uintptr_t, trace::RecordedCall> persistent_;  ///< with the number of the last start
  std::uint32_t persistent_slots_ = 0;                                  ///< in use by collective ones; with mutex_
};

/// The tracer of this process, and where it is once it is there.
[[nodiscard]] Tracer& make_tracer() noexcept;
extern std::atomic<Tracer*> the_tracer;
[[nodiscard]] inline Tracer& tracer() noexcept {
  Tracer* const one = the_tracer.load(std::memory_order_acquire);
  return one != nullptr ? *one : make_tracer();
}

/// A function of the real MPI, by its PMPI name.
[[nodiscard]] void* find_real(const char* name) noexcept;
template <typename Function>
[[nodiscard]] Function* find_real_as(const char* name) noexcept {
  return reinterpret_cast<Function*>(find_real(name));
}

/// Returned for a call that this MPI does not have: MPI_ERR_OTHER.
#ifdef AMLDIST_MPI_HANDLES_ARE_NUMBERS
inline constexpr int unsupported = 15;
#else
inline constexpr int unsupported = 16;
#endif

/// Calls the real function behind one of our wrappers.
template <auto wrapper, typename... Arguments>
int call_real(const char* name, Arguments... arguments) noexcept {
  using Function = std::remove_pointer_t<decltype(wrapper)>;
  static auto* const real = find_real_as<Function>(name);
  return real != nullptr ? real(arguments...) : unsupported;
}

struct Blocking {};
struct Posted {};
/// A call that MPI_Start will make, perhaps many times.
struct Persistent {};
struct OfAll {
  MPI_Comm comm{};
  Operation operation{};
  int root = 0;
  std::uint16_t function = 0;  ///< function_number()
};
/// A call of all members that opened a file or a window.
struct OfOpened {
  std::uintptr_t handle = 0;
  Operation operation{};
  std::uint16_t function = 0;
};
/// A call that waits in access to a window, for ranks that are not known.
struct OfWindow {
  std::uint16_t function = 0;
};
struct OfTwo {
  MPI_Comm comm;
  Operation operation;
  int peer;
  int tag;
};
struct Data {
  std::int64_t count;
  MPI_Datatype type;
  MPI_Op op;
};
[[nodiscard]] inline MPI_Datatype no_type() noexcept { return MPI_Datatype{}; }
[[nodiscard]] inline MPI_Op no_op() noexcept { return MPI_Op{}; }

/// With the number of a function that shares its operation with others.
template <typename Members>
[[nodiscard]] Members by_function(Members members, std::uint16_t number) noexcept {
  if constexpr (requires { members.function; }) members.function = number;
  return members;
}

/// A handle as a number.
template <typename Handle>
[[nodiscard]] std::uintptr_t key_of(Handle handle) noexcept {
  if constexpr (std::is_pointer_v<Handle>) return reinterpret_cast<std::uintptr_t>(handle);
  else return static_cast<std::uintptr_t>(static_cast<unsigned>(handle));
}

/// One call of the program, from its beginning to its end.
class Traced {
 public:
  template <typename How, typename Members>
  Traced(How how, const Members& members, const Data& data, const void* site = nullptr) noexcept : site_(site) {
    if (thread_.depth++ == 0 && tracer().on()) begin(how, members, data);
  }
  ~Traced() { --thread_.depth; }
  Traced(const Traced&) = delete;
  Traced& operator=(const Traced&) = delete;

  int ended(int status) const noexcept {
    if (ticket_ == 0) return status;
    if (status == 0) tracer().recorder().complete(ticket_);
    else tracer().fail(ticket_, status);
    return status;
  }
  int posted(int status, const MPI_Request* request, const MPI_Comm* made = nullptr) const noexcept;
  int prepared(int status, const MPI_Request* request) const noexcept;
  int made(int status, const MPI_Comm* made) const noexcept;
  /// The same for MPI_Intercomm_create, whose two sides make calls on communicators of their own.
  int joined(int status, const MPI_Comm* made) const noexcept;
  template <typename Handle>
  int opened(int status, const Handle* handle, std::string_view what) const noexcept {
    static_cast<void>(ended(status));
    if (status == 0 && parent_ != nullptr) tracer().opened(key_of(*handle), *parent_, sequence_, what);
    return status;
  }
  int closed(int status, std::uintptr_t handle) const noexcept;

 private:
  [[nodiscard]] bool number(const OfAll& call) noexcept;
  void begin(Blocking how, const OfAll& call, const Data& data) noexcept;
  void begin(Posted how, const OfAll& call, const Data& data) noexcept;
  void begin(Blocking how, const OfOpened& call, const Data& data) noexcept;
  void begin(Posted how, const OfOpened& call, const Data& data) noexcept;
  void begin(Blocking how, const OfWindow& call, const Data& data) noexcept;
  void begin(Blocking how, const OfTwo& call, const Data& data) noexcept;
  void begin(Posted how, const OfTwo& call, const Data& data) noexcept;
  void begin(Persistent how, const OfTwo& call, const Data& data) noexcept;
  void begin(Persistent how, const OfAll& call, const Data& data) noexcept;

  ThreadState& thread_ = this_thread();
  const void* site_;
  FlightRecorder::Ticket ticket_ = 0;
  std::optional<trace::RecordedCall> call_;  ///< for a call that does not block
  const Communicator* parent_ = nullptr;
  std::uint64_t sequence_ = 0;
};

}  // namespace amldist::trace::mpi
