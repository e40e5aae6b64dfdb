#include "collective/communicator/device_calls.hpp"

#include "core/text.hpp"

namespace amldist::collective {
namespace {

using text::concat;

constexpr auto between_looks = std::chrono::milliseconds(1);

// From cuda.h; fixed by the driver's ABI.
constexpr unsigned without_timing = 2;
constexpr int not_capturing = 0;
constexpr int success = 0;
constexpr int deinitialized = 4;  // the process is ending
constexpr int not_ready = 600;

}  // namespace

Communicator::DeviceCalls::DeviceCalls(Communicator& owner, const CudaDriver& driver, NcclBackend& backend)
    : owner_(owner), driver_(driver), backend_(backend), ring_(most_pending) {
  owner_.watch_->hold([this] { return oldest(); });
}

Communicator::DeviceCalls::~DeviceCalls() {
  owner_.watch_->hold(nullptr);
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

/// Puts the event behind all that the stream has; false where none can be.
bool Communicator::DeviceCalls::mark(Event& event, void* stream) const {
  const DeviceContext::Current current(backend_.context());
  int capturing = not_capturing;
  if (driver_.stream_is_capturing(stream, &capturing) != success || capturing != not_capturing) return false;
  if (event == nullptr && driver_.event_create(&event, without_timing) != success) return false;
  return driver_.event_record(event, stream) == success;
}

void Communicator::DeviceCalls::add(const Call& call, FlightRecorder::Ticket ticket) {
  const std::uint64_t number = begun_.load(std::memory_order_relaxed);
  if (number - ended_.load(std::memory_order_acquire) == most_pending) wait_for_room();
  Pending& place = at(number);
  if (lost_.load(std::memory_order_relaxed))
    return owner_.close_record(ticket, Error{Errc::aborted, "the communicator was aborted"});
  if (!mark(place.event, call.stream)) return owner_.process_->recorder.complete(ticket);
  place = {call.operation, call.type, call.redop, call.root, call.count, call.sequence, ticket, place.event};
  begun_.store(number + 1);
  if (number == 0 || asleep_.load()) wake();
}

void Communicator::DeviceCalls::wait_for_room() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return begun_.load() - ended_.load() < most_pending || lost_; });
}

void Communicator::DeviceCalls::wake() {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([this] { watch(); });
  changed_.notify_all();
}

void Communicator::DeviceCalls::await_all() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return is_empty() || lost_; });
}

/// What lies between the two numbers is not written: a place is free for another call when `ended_` has passed it.
std::optional<Call> Communicator::DeviceCalls::oldest() const {
  const std::lock_guard lock(mutex_);
  if (is_empty()) return std::nullopt;
  const Pending& first = at(ended_);
  Call call;
  call.operation = first.operation;
  call.type = first.type;
  call.redop = first.redop;
  call.root = first.root;
  call.count = first.count;
  call.sequence = first.sequence;
  return call;
}

void Communicator::DeviceCalls::watch() {
  while (wait_for_call()) {
    const Pending& first = at(ended_);
    const auto ended = await(first);
    if (!ended) return;
    if (!*ended) return give_up(ended->error());
    owner_.process_->recorder.complete(first.ticket);
    const std::lock_guard lock(mutex_);
    ++ended_;
    changed_.notify_all();
  }
}

/// Looks by itself for a while, as the next call mostly comes soon and need not wake this thread then.
bool Communicator::DeviceCalls::wait_for_call() {
  constexpr int looks = 100;
  std::unique_lock lock(mutex_);
  for (int i = 0; i < looks && !stopping_ && is_empty(); ++i) changed_.wait_for(lock, between_looks);
  asleep_ = true;
  changed_.wait(lock, [this] { return stopping_ || !is_empty(); });
  asleep_ = false;
  return !stopping_;
}

/// How the oldest call ended; nullopt when the watch is over before. Its deadline is counted from here on: what waits
/// behind other work on its stream is not late.
std::optional<Result<void>> Communicator::DeviceCalls::await(const Pending& first) {
  CallWatchdog watchdog(owner_, CallWatchdog::Moves::nothing);
  while (true) {
    const auto passed = has_passed(first.event);
    if (!passed) return Result<void>(passed.error());
    if (*passed) return Result<void>();
    if (auto healthy = backend_.health(); !healthy) return owner_.name_who_is_gone(std::move(healthy), watchdog);
    if (auto waiting = watchdog.keep_waiting(Watchdog::anyone); !waiting) return waiting;
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, between_looks, [this] { return stopping_; })) return std::nullopt;
  }
}

Result<bool> Communicator::DeviceCalls::has_passed(Event event) const {
  const DeviceContext::Current current(backend_.context());
  const int status = driver_.event_query(event);
  if (status == success || status == deinitialized) return true;
  if (status == not_ready) return false;
  return Error{Errc::unavailable, concat({"the stream has failed: ", driver_.describe(status)})};
}

/// Ends NCCL's kernels here; the others hear why.
void Communicator::DeviceCalls::give_up(const Error& error) {
  if (!owner_.watch_->is_lost()) owner_.process_->channel->abort(owner_.watch_, error.message);
  backend_.abort();
  const std::lock_guard lock(mutex_);
  for (std::uint64_t number = ended_; number != begun_; ++number) owner_.close_record(at(number).ticket, error);
  lost_ = true;
  changed_.notify_all();
}

}  // namespace amldist::collective
