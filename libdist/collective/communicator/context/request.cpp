#include "collective/communicator/context/request.hpp"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>

namespace amldist::collective {

/// A lock, and where threads wait. Requests share a few of them, because hardly any request needs one. Never destroyed:
/// an exit handler of the program may still wait.
struct Request::Sleep {
  std::mutex mutex;
  std::condition_variable completed;
};

Request::Sleep& Request::sleep() const noexcept {
  constexpr std::size_t many = 16;
  // NOLINTNEXTLINE(bugprone-unhandled-exception-at-new): made once; a process that cannot allocate it may as well end
  static auto* const all = new std::array<Sleep, many>;
  return (*all)[reinterpret_cast<std::uintptr_t>(this) / sizeof(Request) % many];
}

void Request::copy_lists() {
  copies_ = std::make_unique<Copies>();
  first_.lists = &copies_->lists.emplace(*first_.lists).view();
}

Request::Request(std::vector<calls::Call> calls, RequestDriver& driver) : Request(calls.front(), driver) {
  if (calls.size() == 1) return;
  if (!copies_) copies_ = std::make_unique<Copies>();
  copies_->calls = std::move(calls);
}

bool Request::test() {
  if (!is_done()) driver_.progress_for(*this, ProgressUntil::polled);
  return is_done();
}

void Request::wait() {
  if (!is_done()) driver_.progress_for(*this, ProgressUntil::done);
  if (is_done()) return;
  std::unique_lock lock(sleep().mutex);
  state_.fetch_or(watched, std::memory_order_acq_rel);
  sleep().completed.wait(lock, [this] { return is_done(); });
}

void Request::complete_watched() {
  Completion completion;
  {
    const std::lock_guard lock(sleep().mutex);
    completion = std::exchange(completion_, nullptr);
    if (!completion) return be_done();
  }
  // A waiting thread may free what the function uses, so the function comes first.
  completing_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  completion(result_);
  const std::lock_guard lock(sleep().mutex);
  completing_.store({}, std::memory_order_relaxed);
  be_done();
}

void Request::be_done() {
  state_.fetch_or(done, std::memory_order_acq_rel);
  sleep().completed.notify_all();
}

bool Request::wait_for(std::chrono::milliseconds most) {
  using std::chrono::microseconds;
  const auto end = std::chrono::steady_clock::now() + most;
  // Looks again at intervals: if the program may use MPI from one thread only, no other thread makes progress.
  for (microseconds pause(50); !test(); pause = std::min(pause * 2, microseconds(10000))) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= end) return false;
    std::unique_lock lock(sleep().mutex);
    state_.fetch_or(watched, std::memory_order_acq_rel);
    sleep().completed.wait_until(lock, std::min(end, now + pause), [this] { return is_done(); });
  }
  return true;
}

bool Request::on_complete(Completion completion) {
  {
    const std::lock_guard lock(sleep().mutex);
    if (std::exchange(has_completion_, true)) return false;
    completion_ = std::move(completion);
    if ((state_.fetch_or(watched, std::memory_order_acq_rel) & done) == 0) completion = nullptr;
    else completion = std::exchange(completion_, nullptr);
  }
  if (completion) completion(result_);
  else static_cast<void>(test());
  return true;
}

}  // namespace amldist::collective
