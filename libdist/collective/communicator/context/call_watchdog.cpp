#include "collective/communicator/context/call_watchdog.hpp"

#include <algorithm>
#include <string>
#include <thread>

#include "base/text/text.hpp"

namespace amldist::collective {

Result<void> CallWatchdog::keep_waiting(int rank) {
  if (hook_ != nullptr) hook_->drive();
  context_.watch().wait_for(rank);
  if (interrupts_.is_interrupted(Clock::now())) context_.interrupt();
  return check(rank);
}

Result<void> CallWatchdog::check(int rank) {
  if (context_.is_lost()) return *context_.watch().diagnosis();
  if (context_.channel().is_anyone_gone() && is_gone_for_good(rank))
    return find_out({context_.rank(), rank, false, {}});
  if (is_late()) return find_out({context_.rank(), rank, false, {}});
  return {};
}

bool CallWatchdog::is_late() {
  const auto now = Clock::now();
  deadline_ = deadline() + observed_.missed(now);
  return now >= deadline_;
}

void CallWatchdog::troubled(int rank, std::string_view why) {
  if (why.empty()) return context_.watch().set_trouble({});
  const std::string whom = context_.name_of(static_cast<std::uint32_t>(rank));
  context_.watch().set_trouble(text::concat({"cannot reach ", whom, ": ", why}));
}

Error CallWatchdog::differs(int rank) { return find_out({context_.rank(), rank, true, {}}); }

Error CallWatchdog::lost(int rank, std::string_view what) {
  // The control connection distinguishes a death from a departure, and learns of it at about the same time.
  const auto soon = Clock::now() + milliseconds(200);
  while (!is_gone(rank) && !context_.is_lost() && Clock::now() < soon) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  return find_out({context_.rank(), rank, false, std::string(what)});
}

Clock::time_point CallWatchdog::deadline() const noexcept {
  if (deadline_ == Clock::time_point()) deadline_ = Clock::now() + context_.timeout();
  return deadline_;
}

Result<void> CallWatchdog::with_cause(Result<void> result) {
  if (result) return result;
  if (result.error().code == Errc::peer && !context_.is_lost()) return lost(anyone, result.error().message);
  if (result.error().code != Errc::aborted) return result;
  const auto diagnosis = context_.watch().wait_for_diagnosis(Clock::now() + std::chrono::seconds(1));
  return diagnosis ? *diagnosis : result;
}

Error CallWatchdog::find_out(const world::DiagnosisTrigger& trigger) {
  return context_.channel().find_out(context_.shared_watch(), trigger, context_.timeout());
}

/// Data that a rank sent before it ended may still be on its way: the report of its end takes another connection.
bool CallWatchdog::is_gone_for_good(int rank) {
  constexpr auto in_flight = milliseconds(100);
  if (!is_gone(rank)) return false;
  const auto now = Clock::now();
  auto suspect = std::ranges::find(suspects_, rank, &Suspect::rank);
  if (suspect == suspects_.end()) suspect = suspects_.insert(suspect, {rank, now});
  return now - suspect->since >= in_flight;
}

bool CallWatchdog::is_gone(int rank) const {
  const auto& members = context_.watch().members();
  if (rank != anyone) return context_.channel().is_gone(members[static_cast<std::size_t>(rank)]);
  return std::ranges::any_of(members, [this](std::uint32_t member) { return context_.channel().is_gone(member); });
}

}  // namespace amldist::collective
