#include "world/control/comm_watch.hpp"

#include <algorithm>
#include <new>
#include <utility>

namespace amldist::world {
namespace {

void read_what(std::uint64_t word, calls::Call& call) noexcept {
  call.operation = static_cast<calls::Operation>(word & 0xff);
  call.type = static_cast<calls::DataType>((word >> 8) & 0xff);
  call.redop = static_cast<calls::ReduceOp>((word >> 16) & 0xff);
  call.root = static_cast<int>(static_cast<std::uint32_t>(word >> 32));
}

}  // namespace

void CommWatch::set_pending(PendingCall oldest) {
  const std::lock_guard lock(mutex_);
  pending_ = std::move(oldest);
}

Activity CommWatch::activity() const {
  Activity out;
  for (int tries = 0; tries < 4; ++tries) {  // a call that begins meanwhile is read again
    const std::uint8_t state = state_.load(std::memory_order_acquire);
    const bool is_message = (state & of_message) != 0;
    out.inside = (state & inside) != 0;
    out.sequence = collectives_.load(std::memory_order_acquire);
    out.call.sequence = is_message ? messages_.load(std::memory_order_acquire) : out.sequence;
    const Kept& kept = is_message ? message_ : kept_[out.sequence % calls_kept];
    const std::uint64_t mark = kept.mark.load(std::memory_order_acquire);
    read_what(kept.what.load(std::memory_order_acquire), out.call);
    out.call.count = kept.count.load(std::memory_order_acquire);
    const std::uint64_t awaited = awaited_.load(std::memory_order_acquire);
    const bool of_this_call = awaited >> 32 == label_of_call();
    out.waits_for = of_this_call ? static_cast<int>(static_cast<std::uint32_t>(awaited)) : calls::Watchdog::anyone;
    const bool is_whole = mark >> 32 == (out.call.sequence & UINT32_MAX) && kept.mark.load() == mark;
    if (is_whole && collectives_.load(std::memory_order_acquire) == out.sequence) break;
  }
  const std::lock_guard lock(mutex_);
  if (const auto pending = pending_ ? pending_() : std::nullopt) {
    if (!is_point_to_point(pending->operation)) out.sequence = pending->sequence;
    out.inside = true;
    out.call = *pending;
  }
  return out;
}

std::vector<PastCall> CommWatch::past() const {
  std::vector<PastCall> out;
  const std::uint64_t newest = collectives_.load(std::memory_order_acquire);
  for (const Kept& kept : kept_) {
    const std::uint64_t mark = kept.mark.load(std::memory_order_acquire);
    PastCall one;
    read_what(kept.what.load(std::memory_order_acquire), one.call);
    one.call.count = kept.count.load(std::memory_order_acquire);
    if (mark == 0 || kept.mark.load(std::memory_order_relaxed) != mark) continue;  // being written
    one.lists = static_cast<std::uint32_t>(mark);
    // The lower half of the number, completed: it is one of the last few, or the one that is beginning now.
    const auto behind = static_cast<std::uint32_t>(newest) - static_cast<std::uint32_t>(mark >> 32);
    one.call.sequence = newest - static_cast<std::uint64_t>(std::int64_t{static_cast<std::int32_t>(behind)});
    out.push_back(one);
  }
  std::ranges::sort(out, {}, [](const PastCall& one) { return one.call.sequence; });
  return out;
}

void CommWatch::keep_pair_counts(const calls::Call& call) noexcept try {
  const std::lock_guard lock(mutex_);
  pair_counts_.sequence = call.sequence;
  pair_counts_.gives.assign(call.lists->send_counts.begin(), call.lists->send_counts.end());
  pair_counts_.takes.assign(call.lists->recv_counts.begin(), call.lists->recv_counts.end());
} catch (const std::bad_alloc&) {
  pair_counts_.sequence = 0;  // only a sentence will say less
}

PairCounts CommWatch::pair_counts() const {
  const std::lock_guard lock(mutex_);
  return pair_counts_;
}

void CommWatch::set_trouble(std::string clause) {
  const std::lock_guard lock(mutex_);
  trouble_ = std::move(clause);
}

std::string CommWatch::trouble() const {
  const std::lock_guard lock(mutex_);
  return trouble_;
}

bool CommWatch::give_diagnosis(Error error, std::vector<std::uint32_t> silent, ErrorSubject subject) {
  {
    const std::lock_guard lock(mutex_);
    if (diagnosis_) return false;
    diagnosis_ = std::move(error);
    silent_ = std::move(silent);
    subject_ = subject;
  }
  lost_.store(true, std::memory_order_release);
  decided_.notify_all();
  return true;
}

std::vector<std::uint32_t> CommWatch::silent_ranks() const {
  const std::lock_guard lock(mutex_);
  return silent_;
}

ErrorSubject CommWatch::error_subject() const {
  const std::lock_guard lock(mutex_);
  return subject_;
}

std::optional<Error> CommWatch::diagnosis() const {
  const std::lock_guard lock(mutex_);
  return diagnosis_;
}

std::optional<Error> CommWatch::wait_for_diagnosis(Clock::time_point until) {
  std::unique_lock lock(mutex_);
  decided_.wait_until(lock, until, [this] { return diagnosis_.has_value(); });
  return diagnosis_;
}

}  // namespace amldist::world
