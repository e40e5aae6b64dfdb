#include "collective/transport/loopback_transport.hpp"

#include "collective/kernels/copy_bytes.hpp"

namespace amldist::collective {

Result<void> LoopbackTransport::post(const Message& message, Direction direction, std::size_t& left,
                                     calls::Watchdog& watchdog) {
  if (message.peer != own_rank_) return others_->post(message, direction, left, watchdog);
  (direction == Direction::send ? sends_ : receives_).push_back({message, &left});
  ++left;
  return {};
}

Result<bool> LoopbackTransport::progress(calls::Watchdog& watchdog) {
  bool moved = false;
  for (; !sends_.empty() && !receives_.empty(); moved = true) {
    const Half from = sends_.front();
    const Half to = receives_.front();
    const bool has_length =
        to.message.is_most ? from.message.bytes <= to.message.bytes : from.message.bytes == to.message.bytes;
    if (from.message.signature != to.message.signature || !has_length) return watchdog.differs(own_rank_);
    copy_bytes(to.message.data, from.message.data, from.message.bytes);
    sends_.pop_front();
    receives_.pop_front();
    --*from.left;
    --*to.left;
  }
  if (moved) return true;
  return others_->progress(watchdog);
}

int LoopbackTransport::awaited() const noexcept {
  return sends_.empty() && receives_.empty() ? others_->awaited() : own_rank_;
}

void LoopbackTransport::give_up() noexcept {
  sends_.clear();
  receives_.clear();
  others_->give_up();
}

}  // namespace amldist::collective
