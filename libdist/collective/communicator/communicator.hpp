// A communicator: checks what it is asked, gives calls to its back end in order, keeps watch while they wait, and is
// lost as a whole when one of its ranks is.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "collective/communicator/host_backend.hpp"
#include "collective/communicator/request.hpp"
#include "collective/control/control_channel.hpp"
#include "collective/gpu/cuda_driver.hpp"
#include "collective/gpu/nccl_backend.hpp"
#include "core/environment.hpp"
#include "core/settings.hpp"
#include "os/fork_guard.hpp"
#include "placement/identity.hpp"
#include "recorder/flight_recorder.hpp"

namespace amldist::collective {

using std::chrono::milliseconds;

/// What all communicators of a process share.
struct Process {
  Settings settings;
  ForkGuard fork_guard;
  FlightRecorder recorder;
  std::mutex noting;  ///< around recorder.note(): communicators may fail on several threads at once
  CudaProbe cuda;
  TickClock ticks;
  std::string trace;                        ///< for people: where the recorder is, or why there is none
  std::unique_ptr<ControlChannel> channel;  ///< behind the recorder, which its thread uses
  /// nullptr: this process does without MPI. Ends before the channel says goodbye: MPI_Finalize delivers what is on
  /// its way.
  std::unique_ptr<MpiSession> mpi;
};

class Communicator {
 public:
  /// Who makes what was begun: the worker, until somebody waits for it; or whoever waits, if that is known to come at
  /// once. Then nothing is won by another thread, and it would have to find a processor.
  enum class Worker : std::uint8_t { woken, left_asleep };

  /// The world of this step, by the settings in the environment. `timeout` zero: theirs.
  [[nodiscard]] static Result<std::unique_ptr<Communicator>> init(const EnvironmentReader& environment,
                                                                  milliseconds timeout);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// False in a child of the process that made it: there it can only be left alone.
  [[nodiscard]] bool is_here() const noexcept { return process_->fork_guard.is_here(); }
  [[nodiscard]] bool is_world() const noexcept { return is_world_; }
  [[nodiscard]] const Settings& settings() const noexcept { return process_->settings; }
  [[nodiscard]] const Identity& identity() const noexcept { return identity_; }
  [[nodiscard]] const std::string& host(std::uint32_t rank) const {
    return process_->channel->member(watch_->members()[rank]).host;
  }
  [[nodiscard]] const std::string& task_map() const noexcept { return task_map_; }
  [[nodiscard]] const std::string& provenance() const noexcept { return provenance_; }

  /// Runs a call to its end, after those begun before; inside a group only keeps it. Sets its sequence and stream.
  [[nodiscard]] Result<void> run(Call& call);
  /// Begins a call, or several collectives without lists as one request. Errors: invalid_argument inside a group, and
  /// those of check().
  [[nodiscard]] Result<std::shared_ptr<Request>> begin(std::vector<Call> calls, Worker worker = Worker::woken);
  [[nodiscard]] Result<void> group_begin();
  [[nodiscard]] Result<void> group_end();
  /// nullptr for a negative colour.
  [[nodiscard]] Result<std::unique_ptr<Communicator>> split(int color, int key);
  /// Waits for the others in a healthy communicator; the object is then only to be destroyed.
  [[nodiscard]] Result<void> finalize();

  [[nodiscard]] Result<void*> allocate(std::size_t bytes);
  [[nodiscard]] Result<void> release(void* memory);
  [[nodiscard]] Result<void> set_timeout(milliseconds timeout);
  void set_deterministic(bool on);
  void set_stream(void* stream) noexcept { stream_ = stream; }
  void set_log(LogFunction log) { process_->channel->set_log(std::move(log)); }
  void abort();
  /// The reason for which the communicator is lost; nullopt while it is not.
  [[nodiscard]] std::optional<Error> health() const { return watch_->verdict(); }

 private:
  class CallWatchdog;
  class CallExchange;
  class DeviceCalls;
  class MessageTraffic;

  Communicator(std::shared_ptr<Process> process, std::shared_ptr<CommWatch> watch, milliseconds timeout);
  [[nodiscard]] Result<void> build(const Call& call);
  void describe_place();
  [[nodiscard]] bool is_right_at_a_glance(const Call& call) const noexcept;
  [[nodiscard]] Result<void> check(const Call& call) const;
  [[nodiscard]] FlightRecorder::Ticket record(const Call& call, std::uint64_t began);
  void close_record(FlightRecorder::Ticket ticket, const Result<void>& result);
  template <typename Run>
  [[nodiscard]] Result<void> watched(const Call& call, std::uint64_t began, bool on_device, Run run);
  void fail(FlightRecorder::Ticket ticket, const Error& error);
  [[nodiscard]] Result<void> perform(Call& call);
  [[nodiscard]] Result<void> perform_on(int device, const Call& call, std::uint64_t began);
  [[nodiscard]] Result<void> perform_group(std::span<Call> messages);
  [[nodiscard]] Result<void> exchange_split_requests(const Call& call);
  [[nodiscard]] std::optional<int> device_of_buffers(const Call& call, std::uint64_t now);
  [[nodiscard]] std::optional<int> device_of_buffers(const Call& call) {
    return device_of_buffers(call, process_->ticks.now());
  }
  [[nodiscard]] Result<Backend*> backend_for(std::optional<int> device, CallWatchdog& watchdog);
  [[nodiscard]] Result<void> create_device_backend(int device, CallWatchdog& watchdog);
  [[nodiscard]] Result<void> synchronize(void* stream);
  /// What NCCL's own news of another rank's end comes to.
  [[nodiscard]] Result<void> name_who_is_gone(Result<void> result, CallWatchdog& watchdog);
  [[nodiscard]] Error refuse(const Call& late);
  /// The number of a send or a receive. Those of host buffers are counted for settle_messages().
  std::uint64_t number_message(const Call& message, bool of_device) noexcept;
  /// The last thing that ranks do together: whether each has received all that was sent to it. A short message is on
  /// its way without its receiver, so nobody would notice before. Errors: a rank that has not is named.
  [[nodiscard]] Result<void> settle_messages(const Call& call, CallWatchdog& watchdog);
  void close_recorder() noexcept;
  [[nodiscard]] Result<std::vector<std::string>> gather_all(std::string piece, Watchdog& watchdog);

  // What is made beside the program (communicator_requests.cpp). Calls come one after the other; sends and receives of
  // host buffers move on their own, also while a call waits.
  [[nodiscard]] Result<void> make(Call& call);
  [[nodiscard]] Result<void> make_group();
  [[nodiscard]] Result<void> make_messages(std::span<Call> messages);
  [[nodiscard]] std::shared_ptr<Request> enqueue(std::vector<Call> calls, Worker worker = Worker::woken);
  [[nodiscard]] Result<void> perform_to_the_end(const std::vector<std::shared_ptr<Request>>& requests);
  [[nodiscard]] bool can_begin_call() const;
  [[nodiscard]] bool has_turn_for_worker() const;
  [[nodiscard]] std::vector<std::shared_ptr<Request>> next_calls();
  void turn(std::unique_lock<std::mutex>& lock, int& idle);
  void work();
  void pursue(const Request& request, bool to_the_end);
  /// Takes up new messages and moves all, from inside a call that waits.
  void serve_messages();
  /// Where MPI carries data, the program may have left messages of its own with it, such as one that waits for a
  /// connection. MPI moves them only while it is called, and a wait in the node's memory does not call it.
  void let_mpi_move_on();
  [[nodiscard]] bool is_idle() const { return queue_.empty() && arriving_.empty() && !working_ && under_way_ == 0; }
  /// Whether something was begun and has not ended.
  [[nodiscard]] bool has_work() { return has_begun_ && is_busy(); }
  [[nodiscard]] bool is_busy();
  /// Until everything begun has come to its end.
  void drain();

  std::shared_ptr<Process> process_;
  std::shared_ptr<CommWatch> watch_;
  std::atomic<milliseconds::rep> timeout_;
  Identity identity_;
  std::string task_map_;
  std::string provenance_;
  std::unique_ptr<HostBackend> backend_;
  std::unique_ptr<NcclBackend> device_backend_;  ///< from the first device buffer on
  std::unique_ptr<DeviceCalls> device_calls_;
  std::unique_ptr<MessageTraffic> traffic_;
  bool deterministic_ = false;
  std::uint32_t recorder_slot_ = 0;
  void* stream_ = nullptr;
  std::uint64_t collectives_ = 0;  ///< calls begun; sends and receives count on their own
  std::uint64_t messages_ = 0;
  std::vector<std::uint64_t> sent_;  ///< messages of host buffers, by rank
  std::uint64_t received_ = 0;
  std::uint64_t gathers_ = 0;
  std::uint64_t splits_ = 0;
  std::atomic<bool> has_refused_ = false;  ///< a call, because the communicator was lost
  bool is_world_ = false;
  bool finalized_ = false;
  bool has_begun_ = false;  ///< a call without waiting
  int group_depth_ = 0;
  std::vector<Call> group_;
  std::string split_request_;  ///< of the split that is being made
  std::vector<std::string> split_requests_;
  std::atomic<bool> has_arrivals_ = false;

  std::mutex mutex_;                    // guards the rest
  std::condition_variable changed_;     ///< a turn has ended
  std::condition_variable for_worker_;  ///< there is a turn for it: waking it costs whoever else has its processor
  std::deque<std::shared_ptr<Request>> queue_;      ///< calls that have not begun, and messages of device buffers
  std::vector<std::shared_ptr<Request>> arriving_;  ///< messages of host buffers that were not taken up yet
  std::size_t under_way_ = 0;                       ///< those that were, at the end of the last turn
  bool working_ = false;                            ///< a turn is being made
  bool helped_ = false;                             ///< a thread that waits for a request makes the turns
  bool wanted_ = false;                             ///< somebody waits for what is in the queue
  bool stopping_ = false;
  std::thread worker_;  ///< started by the first call that does not wait
};

}  // namespace amldist::collective
