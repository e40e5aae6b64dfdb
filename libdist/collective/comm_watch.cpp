#include "collective/comm_watch.hpp"

namespace amldist::collective {

Activity CommWatch::activity() const noexcept {
  Activity out;
  for (int tries = 0; tries < 4; ++tries) {  // a call that begins meanwhile is read again
    out.inside = inside_.load(std::memory_order_acquire);
    out.sequence = collective_.load(std::memory_order_acquire);
    const std::uint64_t word = what_.load(std::memory_order_acquire);
    out.call.operation = static_cast<Operation>(word & 0xff);
    out.call.type = static_cast<DataType>((word >> 8) & 0xff);
    out.call.redop = static_cast<ReduceOp>((word >> 16) & 0xff);
    out.call.root = static_cast<int>(static_cast<std::uint32_t>(word >> 32));
    out.call.count = count_.load(std::memory_order_acquire);
    out.call.sequence = number_.load(std::memory_order_acquire);
    if (collective_.load(std::memory_order_acquire) == out.sequence) break;
  }
  return out;
}

bool CommWatch::give_verdict(Error error) {
  {
    const std::lock_guard lock(mutex_);
    if (verdict_) return false;
    verdict_ = std::move(error);
  }
  lost_.store(true, std::memory_order_release);
  decided_.notify_all();
  return true;
}

std::optional<Error> CommWatch::verdict() const {
  const std::lock_guard lock(mutex_);
  return verdict_;
}

std::optional<Error> CommWatch::wait_for_verdict(Clock::time_point until) {
  std::unique_lock lock(mutex_);
  decided_.wait_until(lock, until, [this] { return verdict_.has_value(); });
  return verdict_;
}

}  // namespace amldist::collective
