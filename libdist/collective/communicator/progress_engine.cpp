#include "collective/communicator/progress_engine.hpp"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "base/os/time_slice.hpp"

namespace amldist::collective {
namespace {

constexpr auto look_again = std::chrono::milliseconds(1);

bool is_message(const Request& request) { return is_point_to_point(request.first().operation); }
bool is_message(const RequestPtr& request) { return is_message(*request); }

}  // namespace

ProgressEngine::~ProgressEngine() {
  drain();
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  thread_needed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

// ---- submission ----
RequestPtr ProgressEngine::submit(RequestPtr request, ProgressBy by) {
  bool wakes = false;
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(request);
    wakes = needs_thread(by);
  }
  if (wakes) thread_needed_.notify_one();
  return request;
}

/// The rest of submit_message(). Locks if `lock` is not held yet, and unlocks in any case.
RequestPtr ProgressEngine::begin_message(Lock& lock, const calls::Call& call, const Message& message,
                                         BurstClock& clock) {
  if (!lock) lock.lock();
  const bool begins = !is_driven_ && messages_.can_begin(call);
  RequestPtr request = make_request(call);
  if (begins) messages_.begin(request, message, clock.exactly());
  else messages_.submit(request);
  const bool wakes = !request->is_done() && needs_thread(ProgressBy::engine);
  lock.unlock();
  if (wakes) thread_needed_.notify_one();
  if (!begins) messages_.interrupt();
  return request;
}

/// Whether to wake the progress thread for what was submitted; it is started if it has to be. Without a thread, calls
/// run when the program's thread next waits for one. An alert thread comes by itself if the program does not wait soon.
bool ProgressEngine::needs_thread(ProgressBy by) {
  ++submissions_;
  if (by != ProgressBy::engine || !has_thread_) return false;
  if (!thread_.joinable() && !start_thread()) return false;
  habit_.note_begin();
  is_left_alone_ = habit_.waits_soon();
  is_called_ = !is_left_alone_;
  return is_called_ || !is_alert_;
}

/// The system may refuse another thread; the next submission tries again.
bool ProgressEngine::start_thread() {
  try {
    thread_ = std::thread([this] { run_thread(); });
    return true;
  } catch (const std::system_error&) {
    return false;
  }
}

void ProgressEngine::call_thread() {
  is_called_ = true;
  is_left_alone_ = false;
  thread_needed_.notify_one();
}

// ---- the queue ----
bool ProgressEngine::is_busy() {
  const std::lock_guard lock(mutex_);
  return !is_idle();
}

/// Messages of device buffers run when a thread waits for one of them, or for a later call: those that are submitted
/// together run as one, because across two ranks they cannot wait for each other.
bool ProgressEngine::can_run_next() const {
  return !queue_.empty() && (flush_messages_ || !is_message(queue_.back()) || !is_message(queue_.front()));
}

/// The first call, or all messages at the front.
std::vector<RequestPtr> ProgressEngine::pop_next() {
  std::vector<RequestPtr> next;
  if (!can_run_next()) return next;
  do {
    next.push_back(std::move(queue_.front()));
    queue_.pop_front();
  } while (!queue_.empty() && is_message(next.front()) && is_message(queue_.front()));
  flush_messages_ = flush_messages_ && !queue_.empty();
  return next;
}

// ---- progress ----
/// Marks the engine as driven, without the lock; afterwards, also after an exception, it is free again.
class ProgressEngine::Driving {
 public:
  Driving(ProgressEngine& engine, Lock& lock) : engine_(engine), lock_(lock) {
    engine_.is_driven_ = true;
    lock_.unlock();
  }
  ~Driving() {
    lock_.lock();
    engine_.is_driven_ = false;
    if (engine_.awaiting_round_ != 0) engine_.round_ended_.notify_all();
  }
  Driving(const Driving&) = delete;
  Driving& operator=(const Driving&) = delete;

 private:
  ProgressEngine& engine_;
  Lock& lock_;
};

/// One round: takes up new messages, runs the next call, moves messages.
void ProgressEngine::progress_once(Lock& lock, int& idle) {
  const auto next = pop_next();
  const Driving driving(*this, lock);
  messages_.take_up();
  if (!next.empty()) {
    const auto result = runner_.run_to_completion(next, has_waiter_);
    for (const auto& request : next) request->complete(result);
  }
  idle = messages_.progress() || !next.empty() ? 0 : idle + 1;
  messages_.back_off(idle);
}

template <typename HasEnded>
bool ProgressEngine::await_rounds(Lock& lock, HasEnded has_ended) {
  ++awaiting_round_;
  const bool ended = round_ended_.wait_for(lock, look_again, has_ended);
  --awaiting_round_;
  return ended;
}

/// While another thread drives, it may finish a message and go on with a collective that waits for what this thread
/// does next: so this one checks its request repeatedly.
void ProgressEngine::progress_or_wait(Lock& lock, int& idle, const Request* awaited) {
  if (!is_driven_) return progress_once(lock, idle);
  const auto has_ended = [&] { return !is_driven_ || (awaited != nullptr && awaited->is_done()); };
  InterruptCheck interrupts;
  while (!await_rounds(lock, has_ended)) {
    lock.unlock();
    if (interrupts.is_interrupted(Clock::now())) runner_.interrupt();
    lock.lock();
  }
}

bool ProgressEngine::is_queued(const Request& request) const {
  return std::ranges::any_of(queue_, [&](const auto& each) { return each.get() == &request; });
}

bool ProgressEngine::is_thread_needed() const {
  return !is_driven_ && !has_waiter_ && (can_run_next() || !messages_.is_empty());
}

void ProgressEngine::run_thread() {
  ask_for_short_slices();  // it mostly waits for other ranks, on a processor on which the program computes
  Lock lock(mutex_);
  for (int idle = 0; await_work(lock);) progress_once(lock, idle);
}

/// Returns when the thread was called and is needed, or when nothing was submitted since the last look and it still is;
/// false: it has to end. It looks at intervals only if the program is left alone: to set a timer takes microseconds in
/// a virtual machine.
bool ProgressEngine::await_work(Lock& lock) {
  constexpr int most_looks = 100;  // without a submission; then it sleeps until it is woken
  std::uint64_t seen = 0;
  for (int looks = 0;; ++looks) {
    if (is_stopping_) return false;
    if (is_thread_needed() && (is_called_ || seen == submissions_)) {
      is_called_ = true;  // it goes on until the program comes back
      return true;
    }
    is_called_ = is_called_ && (is_driven_ || has_waiter_);
    if (seen != submissions_) looks = 0;
    seen = submissions_;
    is_alert_ = is_left_alone_ && looks < most_looks;
    if (is_alert_) thread_needed_.wait_for(lock, look_again);
    else thread_needed_.wait(lock);
  }
}

/// A thread that tests leaves the work to the progress thread, if there is one; a thread that waits takes it over.
void ProgressEngine::progress_for(const Request& request, ProgressUntil until) {
  Lock lock(mutex_);
  flush_messages_ = !queue_.empty();
  const bool has_thread = thread_.joinable();
  const bool to_the_end = until == ProgressUntil::done;
  if (to_the_end) habit_.note_wait();
  else habit_.note_test();
  if (has_thread && !to_the_end) return call_thread();
  if (has_thread && is_driven_) messages_.interrupt();
  const bool moves_beside = has_thread && is_message(request) && !is_queued(request);
  int idle = 0;
  do {
    has_waiter_ = !moves_beside || !can_run_next();
    if (has_waiter_) {
      progress_or_wait(lock, idle, &request);
    } else {  // a collective may wait for what this thread does after its message, and the message for the collective
      call_thread();
      await_rounds(lock, [&] { return request.is_done() || !can_run_next(); });
    }
  } while (!request.is_done() && (to_the_end || !queue_.empty()));
  has_waiter_ = false;
  if (!has_thread && !is_driven_ && !request.is_done()) {
    const Driving driving(*this, lock);
    messages_.ask_at_intervals();
  }
  if (is_thread_needed() && (!is_alert_ || !habit_.waits_soon())) call_thread();
}

void ProgressEngine::drain() {
  Lock lock(mutex_);
  flush_messages_ = !queue_.empty();
  for (int idle = 0; !is_idle();) progress_or_wait(lock, idle, nullptr);
}

}  // namespace amldist::collective
