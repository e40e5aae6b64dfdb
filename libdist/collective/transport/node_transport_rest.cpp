// How a rank of a node waits for messages: whom it waits for, and when it lets others run or sleeps.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <thread>
#include <utility>

#include "collective/node/channel/relax.hpp"
#include "collective/transport/node_transport.hpp"

namespace amldist::collective {

int NodeTransport::awaited() const noexcept {
  if (!receiving_.empty()) return ranks_[receiving_.front()];
  if (const int other = others_->awaited(); other != calls::Watchdog::anyone) return other;
  return sending_.empty() ? calls::Watchdog::anyone : ranks_[sending_.front()];
}

/// A socket reports the death of its peer; a ring does not. So the watchdog is asked about each peer.
Result<void> NodeTransport::keep_waiting(calls::Watchdog& watchdog) {
  if (auto status = watchdog.keep_waiting(awaited()); !status) return status;
  for (const auto* active : {&receiving_, &sending_}) {
    // NOLINTNEXTLINE(modernize-loop-convert): the watchdog may post messages, which makes the list longer
    for (std::size_t i = 0; i < active->size(); ++i) {
      if (auto status = watchdog.keep_waiting(ranks_[(*active)[i]]); !status) return status;
    }
  }
  return {};
}

/// With a processor per rank it polls for a few microseconds, then yields, and after a long wait sleeps for short
/// times. No process needs to be woken, so sending stays cheap. Messages from other nodes wait until the sleep ends.
bool NodeTransport::rest(int idle) {
  constexpr int spins = 256;
  constexpr auto patience = std::chrono::microseconds(500);
  if (is_idle()) return others_->rest(idle);
  const int polls = oversubscribed_ ? 1 : spins;
  if (idle < polls) {
    if (idle < polls / 2) pauses_.pause();
    else relax();
    return false;
  }
  const auto now = Clock::now();
  if (std::exchange(is_new_, false) || idle == polls) idle_since_ = now;
  const auto waited = now - idle_since_;
  if (waited < patience) {
    std::this_thread::yield();
    return false;
  }
  nap(waited);
  return true;
}

/// The sleep is a small part of the time waited so far, so that it adds little to it.
void NodeTransport::nap(Clock::duration waited) {
  constexpr auto longest = std::chrono::nanoseconds(std::chrono::milliseconds(2));
  const auto length = std::min<std::chrono::nanoseconds>(waited / 16, longest);
  const timespec limit = {0, static_cast<long>(length.count())};
  pollfd wanted = {interrupted_.get(), POLLIN, 0};
  has_slept_ = true;
  naps_.store(true);
  if (::ppoll(&wanted, 1, &limit, nullptr) > 0) {
    std::uint64_t interruptions = 0;
    static_cast<void>(::read(interrupted_.get(), &interruptions, sizeof interruptions) == 0);
  }
  naps_.store(false);
}

void NodeTransport::interrupt() noexcept {
  const std::uint64_t one = 1;
  if (naps_.load()) static_cast<void>(::write(interrupted_.get(), &one, sizeof one) == 0);
  others_->interrupt();
}

}  // namespace amldist::collective
