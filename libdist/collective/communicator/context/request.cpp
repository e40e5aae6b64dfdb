#include "collective/communicator/context/request.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace amldist::collective {

Request::Request(std::vector<calls::Call> calls, Progress progress)
    : calls_(std::move(calls)), progress_(std::move(progress)) {
  calls::Call& call = calls_.front();
  std::span<const std::size_t>* const spans[4] = {&call.send_counts, &call.send_offsets, &call.recv_counts,
                                                  &call.recv_offsets};
  for (std::size_t i = 0; i < 4; ++i) {
    lists_[i].assign(spans[i]->begin(), spans[i]->end());
    *spans[i] = lists_[i];
  }
}

bool Request::test() {
  if (!is_done()) progress_(*this, ProgressUntil::polled);
  return is_done();
}

void Request::wait() {
  if (!is_done()) progress_(*this, ProgressUntil::done);
  std::unique_lock lock(mutex_);
  completed_.wait(lock, [this] { return is_done(); });
}

void Request::complete(Result<void> result) {
  Completion completion;
  {
    const std::lock_guard lock(mutex_);
    result_ = std::move(result);
    completion = std::exchange(completion_, nullptr);
    if (!completion) return be_done();
  }
  // A waiting thread may free what the function uses, so the function comes first.
  completing_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  completion(result_);
  const std::lock_guard lock(mutex_);
  completing_.store({}, std::memory_order_relaxed);
  be_done();
}

void Request::be_done() {
  done_.store(true, std::memory_order_release);
  completed_.notify_all();
}

bool Request::wait_for(std::chrono::milliseconds most) {
  using std::chrono::microseconds;
  const auto end = std::chrono::steady_clock::now() + most;
  // Looks again at intervals: if the program may use MPI from one thread only, no other thread makes progress.
  for (microseconds pause(50); !test(); pause = std::min(pause * 2, microseconds(10000))) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= end) return false;
    std::unique_lock lock(mutex_);
    completed_.wait_until(lock, std::min(end, now + pause), [this] { return is_done(); });
  }
  return true;
}

bool Request::on_complete(Completion completion) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(has_completion_, true)) return false;
    if (!is_done()) completion_ = std::exchange(completion, nullptr);
  }
  if (completion) completion(result_);
  else static_cast<void>(test());
  return true;
}

}  // namespace amldist::collective
