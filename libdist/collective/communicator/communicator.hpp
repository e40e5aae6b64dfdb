// A communicator: the parts that make its calls, and the program's interface to it. README.md here explains the whole.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/text/environment.hpp"
#include "base/time/burst_clock.hpp"
#include "collective/communicator/call_check.hpp"
#include "collective/communicator/call_runner.hpp"
#include "collective/communicator/context/call_recorder.hpp"
#include "collective/communicator/context/comm_context.hpp"
#include "collective/communicator/context/process.hpp"
#include "collective/communicator/device/device_calls.hpp"
#include "collective/communicator/host/host_backend.hpp"
#include "collective/communicator/host/pending_messages.hpp"
#include "collective/communicator/progress_engine.hpp"
#include "collective/communicator/world_config.hpp"
#include "collective/settings.hpp"
#include "launch/placement/identity.hpp"

namespace amldist::collective {

/// Calls come from one thread of the program at a time. abort(), health() and set_timeout() are thread-safe.
class Communicator {
 public:
  /// The world of this step as configured by the environment, or another one that `config` describes. `timeout` zero:
  /// as configured.
  [[nodiscard]] static Result<std::unique_ptr<Communicator>> init(const EnvironmentReader& environment,
                                                                  milliseconds timeout, WorldConfig config = {});
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// False in a child of the process that made it: the child can only leave it alone.
  [[nodiscard]] bool is_here() const noexcept { return process_->fork_guard.is_here(); }
  [[nodiscard]] bool is_world() const noexcept { return is_world_; }
  [[nodiscard]] const Settings& settings() const noexcept { return process_->settings; }
  [[nodiscard]] const launch::Identity& identity() const noexcept { return identity_; }
  [[nodiscard]] const std::string& host(std::uint32_t rank) const { return context_.host_of(rank); }
  [[nodiscard]] const std::string& task_map() const noexcept { return task_map_; }
  [[nodiscard]] const std::string& provenance() const noexcept { return provenance_; }

  /// Runs a call to its end, after those begun before; inside a group only keeps it. Sets its sequence and stream.
  [[nodiscard]] Result<void> run(calls::Call& call);
  /// Begins a call, or several collectives without lists as one request. Errors: invalid_argument inside a group, and
  /// those of check_call().
  [[nodiscard]] Result<RequestPtr> begin(std::vector<calls::Call> calls, ProgressBy by);
  /// Begins one call. Sets `request`, but leaves it empty if the message has ended already.
  [[nodiscard]] Result<void> begin(calls::Call& call, RequestPtr& request);
  [[nodiscard]] Result<void> group_begin();
  [[nodiscard]] Result<void> group_end();
  /// nullptr for a negative colour.
  [[nodiscard]] Result<std::unique_ptr<Communicator>> split(int color, int key);
  /// The result of agree(), the same on every rank that gets one.
  struct Agreed {
    std::uint64_t flags = 0;    ///< bitwise AND of the flags of the remaining ranks
    std::optional<Error> lost;  ///< which ranks were lost
  };
  /// Works whatever ends meanwhile, and also after a loss. Errors: aborted if the others have excluded this rank.
  [[nodiscard]] Result<Agreed> agree(std::uint64_t flags);
  /// Whether the ranks should save and end (world/control/stop_polls.hpp): the same on all ranks at the same call.
  [[nodiscard]] Result<bool> should_stop();
  /// A communicator of the remaining ranks, in their order. This one then counts as failed, even if it had not failed
  /// before.
  [[nodiscard]] Result<std::unique_ptr<Communicator>> shrink();
  /// Waits for the others if the communicator is healthy; the object can then only be destroyed.
  [[nodiscard]] Result<void> finalize();

  [[nodiscard]] Result<void*> allocate(std::size_t bytes) { return host_->allocate(bytes); }
  [[nodiscard]] Result<void> release(void* memory) { return host_->release(memory); }
  [[nodiscard]] Result<void> register_memory(void* memory, std::size_t bytes) {
    return host_->register_memory(memory, bytes);
  }
  [[nodiscard]] Result<void> deregister_memory(void* memory) { return host_->deregister_memory(memory); }
  [[nodiscard]] Result<void> set_timeout(milliseconds timeout);
  /// For calls on device buffers from now on.
  void set_stream(void* stream) noexcept { stream_ = stream; }
  void set_log(world::LogFunction log) { process_->channel->set_log(std::move(log)); }
  void abort();
  /// The reason for which the communicator is lost; nullopt while it is not.
  [[nodiscard]] std::optional<Error> health() const { return context_.watch().diagnosis(); }
  /// The ranks that the reason names.
  [[nodiscard]] world::ErrorSubject error_subject() const { return context_.watch().error_subject(); }

 private:
  using AgreementTicketPtr = std::shared_ptr<world::AgreementTicket>;

  Communicator(std::shared_ptr<Process> process, std::shared_ptr<world::CommWatch> watch, milliseconds timeout);
  [[nodiscard]] Result<void> build(const calls::Call& call, calls::Watchdog& watchdog);
  [[nodiscard]] Result<void> build(const calls::Call& call) {
    CallWatchdog watchdog(context_);
    return build(call, watchdog);
  }
  /// MPI, as far as this communicator may use it: MPI itself cannot continue after a rank is lost.
  [[nodiscard]] world::MpiSession* mpi() const noexcept { return is_shrunk_ ? nullptr : process_->mpi.get(); }
  [[nodiscard]] Result<world::AgreementOutcome> join_agreement(const AgreementTicketPtr& ticket, std::uint64_t flags,
                                                               std::uint64_t purpose);
  [[nodiscard]] AgreementTicketPtr open_agreement(std::uint64_t needed, milliseconds late_after);
  [[nodiscard]] Error exclusion_error(world::Exclusion why) const;
  [[nodiscard]] std::unique_ptr<Communicator> build_survivors(const world::Exclusions& excluded, std::uint64_t round,
                                                              const world::AgreementTicket& ticket, milliseconds limit);
  void hand_over_to(Communicator& heir);
  void connect_parts();
  void describe_place();
  /// `now`: a reading of the process's ticks, which takes as long as the rest of a short message.
  [[nodiscard]] bool is_on_device(const calls::Call& call, std::uint64_t now) const {
    return devices_.device_of(call, now) != DeviceCalls::no_device;
  }
  [[nodiscard]] bool is_on_device(const calls::Call& call) const { return is_on_device(call, process_->ticks.now()); }
  /// Before a message: exact, unless it is one of a burst of short ones.
  [[nodiscard]] std::uint64_t read_clock(const Message& message) noexcept {
    constexpr std::size_t most = 1024;  // bytes; every transport that moves one at once knows when it looked in vain
    return message.bytes <= most ? clock_.now() : clock_.read_exactly();
  }
  // Runs after the calls that began before.
  [[nodiscard]] Result<void> run_in_order(calls::Call& call);
  [[nodiscard]] Result<void> run_messages_in_order(std::span<calls::Call> messages);
  [[nodiscard]] Result<void> run_group();
  /// Checks a call that is not to block, and sets its stream.
  [[nodiscard]] Result<void> prepare(calls::Call& call) const {
    call.stream = stream_;
    if (group_depth_ == 0 && passes_quick_check(call, identity_.size)) return {};
    return check_begin(call);
  }
  [[nodiscard]] Result<void> check_begin(const calls::Call& call) const;
  [[nodiscard]] bool ends_at_once(calls::Call& call);
  [[nodiscard]] inline RequestPtr submit(calls::Call& call);
  [[nodiscard]] static Result<void> result_of(const RequestPtr& request);
  [[nodiscard]] Result<void> start_recorder(const EnvironmentReader& environment, bool is_of_step,
                                            const calls::Call& call);
  void close_recorder() noexcept;

  // Each part is built from those before it. `host_`, and the parts after `devices_`, exist once build() has succeeded.
  const std::shared_ptr<Process> process_;
  BurstClock clock_;  ///< of messages, on the program's thread
  CommContext context_;
  CallRecorder recorder_;
  SequenceNumbers numbers_;
  RefusedCalls refused_;
  ControlGather gather_;
  std::unique_ptr<HostBackend> host_;
  DeviceCalls devices_;
  std::optional<MpiProgress> mpi_;
  std::optional<PendingMessages> messages_;
  std::optional<CallProgress> progress_;
  std::optional<CallRunner> runner_;
  std::optional<ProgressEngine> engine_;

  launch::Identity identity_;
  std::string task_map_;
  std::string provenance_;
  bool is_world_ = false;
  bool keeps_recorder_ = false;  ///< leaves the process's recorder open for the newest world
  bool is_shrunk_ = false;       ///< it, or one that it was split from, is the result of a shrink
  bool is_finalized_ = false;
  bool has_begun_stop_ = false;
  void* stream_ = nullptr;
  std::uint64_t splits_ = 0;
  std::uint64_t agreements_ = 0;  ///< rounds that were started
  int group_depth_ = 0;
  std::vector<calls::Call> group_;
  std::deque<calls::OwnedLists> lists_of_group_;
};

}  // namespace amldist::collective
