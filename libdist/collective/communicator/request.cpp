#include "collective/communicator/request.hpp"

#include <span>

namespace amldist::collective {

Request::Request(std::vector<Call> calls, Progress progress)
    : calls_(std::move(calls)), progress_(std::move(progress)) {
  Call& call = calls_.front();
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
  const std::lock_guard lock(mutex_);
  result_ = std::move(result);
  done_.store(true, std::memory_order_release);
  completed_.notify_all();
}

}  // namespace amldist::collective
