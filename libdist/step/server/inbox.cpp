#include "step/server/inbox.hpp"

#include <algorithm>

#include "base/text/text.hpp"

namespace amldist::step {
namespace {

constexpr std::uint32_t many_nodes = 16'384;

}  // namespace

Inbox::Inbox(const Token& token, std::uint32_t nodes)
    : token_(token), most_senders_(senders_of_node * (nodes != 0 ? nodes : many_nodes)) {}

std::optional<Inbox::Letter> Inbox::take(std::string_view datagram, Clock::time_point now) {
  auto unsealed = unseal(token_, Direction::to_srun, datagram);
  if (!unsealed) {
    ++without_code_;
    return std::nullopt;
  }
  const Stamp& stamp = unsealed->stamp;
  const bool is_known = senders_.contains(stamp.sender);
  if (!is_known && senders_.size() >= most_senders_)
    return std::nullopt;  // only the step's own user can bring that about
  Sender& sender = senders_[stamp.sender];
  if (!is_new(sender, stamp.time)) {
    ++repeated_;
    return std::nullopt;
  }
  const auto own_time = std::chrono::nanoseconds(now.time_since_epoch()).count();
  if (!is_known) sender.delay = own_time - static_cast<std::int64_t>(stamp.time);
  const bool late = is_late(sender, stamp.time, own_time);
  return Letter{stamp, std::move(unsealed->message), late};
}

bool Inbox::is_new(Sender& sender, std::uint64_t time) {
  if (time <= sender.floor || std::ranges::find(sender.seen, time) != sender.seen.end()) return false;
  auto& oldest = *std::ranges::min_element(sender.seen);
  if (time < oldest) return false;
  sender.floor = oldest;
  oldest = time;
  return true;
}

/// The clocks of two nodes run at slightly different rates, so the delay of the fastest message grows by at most a
/// thousandth of the time that passes.
bool Inbox::is_late(Sender& sender, std::uint64_t time, std::int64_t now) {
  constexpr std::int64_t most_drift = 1000;
  constexpr std::int64_t longest_delay = 10'000'000'000;
  const std::int64_t delay = now - static_cast<std::int64_t>(time);
  if (sender.heard_at != 0) sender.delay += (now - sender.heard_at) / most_drift;
  sender.heard_at = now;
  sender.delay = std::min(sender.delay, delay);
  return delay - sender.delay > longest_delay;
}

std::string Inbox::dropped(std::string_view where) const {
  const std::uint64_t all = without_code_ + repeated_ + late_;
  if (all == 0) return {};
  return text::concat({std::to_string(all), " datagrams that came to ", where,
                       " were dropped: ", std::to_string(without_code_), " without the step's code, ",
                       std::to_string(repeated_), " repeated, ", std::to_string(late_), " too late"});
}

}  // namespace amldist::step
