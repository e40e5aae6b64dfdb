#include "collective/device_calls.hpp"

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

Communicator::DeviceCalls::~DeviceCalls() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  const DeviceContext::Current current(backend_.context());
  for (const Pending& left : pending_) driver_.event_destroy(left.event);
  for (const Event event : unused_) driver_.event_destroy(event);
}

/// An event behind all that the stream has; nullptr where there can be none.
Communicator::DeviceCalls::Event Communicator::DeviceCalls::mark(void* stream) {
  const DeviceContext::Current current(backend_.context());
  int capturing = not_capturing;
  if (driver_.stream_is_capturing(stream, &capturing) != success || capturing != not_capturing) return nullptr;
  Event event = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!unused_.empty()) {
      event = unused_.back();
      unused_.pop_back();
    }
  }
  if (event == nullptr && driver_.event_create(&event, without_timing) != success) return nullptr;
  if (driver_.event_record(event, stream) == success) return event;
  driver_.event_destroy(event);
  return nullptr;
}

void Communicator::DeviceCalls::add(const Call& call, FlightRecorder::Ticket ticket) {
  const Event event = mark(call.stream);
  if (event == nullptr) return owner_.process_->recorder.complete(ticket);
  const std::lock_guard lock(mutex_);
  pending_.push_back({call, ticket, event});
  if (pending_.size() == 1) owner_.watch_->hold(call);
  if (!thread_.joinable()) thread_ = std::thread([this] { watch(); });
  changed_.notify_all();
}

void Communicator::DeviceCalls::await_all() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return pending_.empty() || lost_; });
}

void Communicator::DeviceCalls::watch() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || (!pending_.empty() && !lost_); });
    if (stopping_) return;
    const Pending first = pending_.front();
    lock.unlock();
    const auto ended = await(first);
    if (ended && !*ended) give_up(ended->error());
    else if (ended) owner_.process_->recorder.complete(first.ticket);
    lock.lock();
    if (!ended || lost_) continue;
    pending_.pop_front();
    unused_.push_back(first.event);
    if (pending_.empty()) owner_.watch_->release();
    else owner_.watch_->hold(pending_.front().call);
    changed_.notify_all();
  }
}

/// How the oldest call ended; nullopt when the watch is over before. Its deadline is counted from here on: what waits
/// behind other work on its stream is not late.
std::optional<Result<void>> Communicator::DeviceCalls::await(const Pending& first) {
  CallVigil vigil(owner_, CallVigil::Moves::nothing);
  while (true) {
    const auto passed = has_passed(first.event);
    if (!passed) return Result<void>(passed.error());
    if (*passed) return Result<void>();
    if (auto healthy = backend_.health(); !healthy) return owner_.name_who_is_gone(std::move(healthy), vigil);
    if (auto waiting = vigil.keep_waiting(Vigil::anyone); !waiting) return waiting;
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
  for (const Pending& each : pending_) owner_.close_record(each.ticket, error);
  lost_ = true;
  changed_.notify_all();
}

}  // namespace amldist::collective
