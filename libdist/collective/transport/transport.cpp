#include "collective/transport/transport.hpp"

namespace amldist::collective {

Result<void> Transport::run(std::span<const Message> sends, std::span<const Message> receives,
                            calls::Watchdog& watchdog, const Received* received) {
  std::size_t left = 0;
  lefts_.clear();
  if (received != nullptr) lefts_.resize(receives.size());
  for (const Message& message : sends) {
    if (auto status = post(message, Direction::send, left, watchdog); !status) return status;
  }
  for (std::size_t i = 0; i < receives.size(); ++i) {
    std::size_t& own = received != nullptr ? lefts_[i] : left;
    if (auto status = post(receives[i], Direction::receive, own, watchdog); !status) return status;
  }
  std::size_t told = 0;
  int rounds = 0;  // without a question to the watchdog
  for (int idle = 0; left != 0 || told < lefts_.size();) {
    const auto moved = progress(watchdog);
    if (!moved) return moved.error();
    while (received != nullptr && told < lefts_.size() && lefts_[told] == 0) (*received)(told++);
    idle = *moved ? 0 : idle + 1;
    const bool asks = !*moved && rest(idle);
    if (++rounds < most_rounds_unasked && !asks) continue;
    rounds = 0;
    if (auto status = keep_waiting(watchdog); !status) return status;
  }
  return {};
}

Result<void> Transport::exchange(std::span<const Message> sends, std::span<const Message> receives,
                                 calls::Watchdog& watchdog, const Received* received) {
  auto result = run(sends, receives, watchdog, received);
  if (!result) give_up();
  return result;
}

}  // namespace amldist::collective
