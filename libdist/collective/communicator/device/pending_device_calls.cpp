#include "collective/communicator/device/pending_device_calls.hpp"

#include "base/text/text.hpp"

namespace amldist::collective {
namespace {

using text::concat;

constexpr auto poll_interval = std::chrono::milliseconds(1);

// From cuda.h; fixed by the driver's ABI.
constexpr unsigned without_timing = 2;
constexpr int not_capturing = 0;
constexpr int success = 0;
constexpr int deinitialized = 4;  // the process is ending
constexpr int not_ready = 600;

}  // namespace

PendingDeviceCalls::PendingDeviceCalls(CommContext& context, CallObserver& observer, const CudaDriver& driver,
                                       NcclBackend& backend)
    : context_(context), observer_(observer), driver_(driver), backend_(backend), ring_(most_pending) {
  context_.watch().set_pending([this] { return oldest(); });
}

PendingDeviceCalls::~PendingDeviceCalls() {
  context_.watch().set_pending(nullptr);
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  const DeviceContext::Current current(backend_.context());
  for (const Pending& each : ring_) {
    if (each.event != nullptr) driver_.event_destroy(each.event);
  }
}

/// Records the event after all work on the stream; false if that is not possible.
bool PendingDeviceCalls::record_event(Event& event, void* stream) const {
  const DeviceContext::Current current(backend_.context());
  int capturing = not_capturing;
  if (driver_.stream_is_capturing(stream, &capturing) != success || capturing != not_capturing) return false;
  if (event == nullptr && driver_.event_create(&event, without_timing) != success) return false;
  return driver_.event_record(event, stream) == success;
}

void PendingDeviceCalls::add(const calls::Call& call, CallObserver::Ticket ticket) {
  const std::uint64_t number = begun_.load(std::memory_order_relaxed);
  if (number - ended_.load(std::memory_order_acquire) == most_pending) wait_for_room();
  Pending& place = at(number);
  if (lost_.load(std::memory_order_relaxed))
    return observer_.fail(ticket, {Errc::aborted, "the communicator was aborted"});
  if (!record_event(place.event, call.stream)) return observer_.complete(ticket);
  place = {call.operation, call.type, call.redop, call.root, call.count, call.sequence, ticket, place.event};
  begun_.store(number + 1);
  if (lost_.load()) return fail_late(number, ticket);
  if (number == 0 || asleep_.load()) wake();
}

/// The thread has given all calls up, and may not have seen this one.
void PendingDeviceCalls::fail_late(std::uint64_t number, CallObserver::Ticket ticket) {
  const std::lock_guard lock(mutex_);
  if (number >= failed_) observer_.fail(ticket, {Errc::aborted, "the communicator was aborted"});
}

void PendingDeviceCalls::wait_for_room() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return begun_.load() - ended_.load() < most_pending || lost_; });
}

void PendingDeviceCalls::wake() {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([this] { run_thread(); });
  changed_.notify_all();
}

void PendingDeviceCalls::await_all() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return is_empty() || lost_; });
}

/// Places between the two numbers are not written: one is free for another call when `ended_` has passed it.
std::optional<calls::Call> PendingDeviceCalls::oldest() const {
  const std::lock_guard lock(mutex_);
  if (is_empty()) return std::nullopt;
  const Pending& first = at(ended_);
  calls::Call call;
  call.operation = first.operation;
  call.type = first.type;
  call.redop = first.redop;
  call.root = first.root;
  call.count = first.count;
  call.sequence = first.sequence;
  return call;
}

void PendingDeviceCalls::run_thread() {
  while (wait_for_call()) {
    const Pending& first = at(ended_);
    const auto ended = await(first);
    if (!ended) return;
    if (!*ended) return fail_all(ended->error());
    observer_.complete(first.ticket);
    const std::lock_guard lock(mutex_);
    ++ended_;
    changed_.notify_all();
  }
}

/// Polls for a while, because the next call usually comes soon and then need not wake this thread.
bool PendingDeviceCalls::wait_for_call() {
  constexpr int polls = 100;
  std::unique_lock lock(mutex_);
  for (int i = 0; i < polls && !stopping_ && is_empty(); ++i) changed_.wait_for(lock, poll_interval);
  asleep_ = true;
  changed_.wait(lock, [this] { return stopping_ || !is_empty(); });
  asleep_ = false;
  return !stopping_;
}

/// How the oldest call ended; nullopt if the thread must stop before. Its deadline counts from here on: a call that
/// waits behind other work on its stream is not late.
std::optional<Result<void>> PendingDeviceCalls::await(const Pending& first) {
  CallWatchdog watchdog(context_);
  while (true) {
    const auto passed = has_passed(first.event);
    if (!passed) return Result<void>(passed.error());
    if (*passed) return Result<void>();
    if (auto healthy = backend_.health(); !healthy) return watchdog.with_cause(std::move(healthy));
    if (auto status = watchdog.check(calls::Watchdog::anyone); !status) return status;
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, poll_interval, [this] { return stopping_; })) return std::nullopt;
  }
}

Result<bool> PendingDeviceCalls::has_passed(Event event) const {
  const DeviceContext::Current current(backend_.context());
  const int status = driver_.event_query(event);
  if (status == success || status == deinitialized) return true;
  if (status == not_ready) return false;
  return Error{Errc::unavailable, concat({"the stream has failed: ", driver_.describe(status)})};
}

/// Ends NCCL's kernels here, and tells the other ranks why.
void PendingDeviceCalls::fail_all(const Error& error) {
  context_.give_up(error);
  backend_.abort();
  const std::lock_guard lock(mutex_);
  lost_ = true;  // before begun_ is read: either add() sees this, or this thread sees its call
  failed_ = begun_;
  for (std::uint64_t number = ended_; number != failed_; ++number) observer_.fail(at(number).ticket, error);
  changed_.notify_all();
}

}  // namespace amldist::collective
