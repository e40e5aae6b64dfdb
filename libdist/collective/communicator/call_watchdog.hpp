// What the files of the communicator share of its inside.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "collective/communicator/communicator.hpp"

namespace amldist::collective {

/// Keeps watch over one call, and moves the messages that are under way meanwhile: a call may wait for a rank that
/// waits for one of them. The deadline is counted from the first look, a few microseconds after the call began: calls
/// that do not wait never ask the clock.
class Communicator::CallWatchdog final : public Watchdog {
 public:
  /// What goes on while the call waits.
  enum class Moves : std::uint8_t {
    all,       ///< the messages that are under way, and MPI
    only_mpi,  ///< the messages are moved by whoever waits
    nothing,   ///< neither may be touched by this thread
  };
  explicit CallWatchdog(Communicator& owner, Moves moves = Moves::all) : owner_(owner), moves_(moves) {}

  [[nodiscard]] Result<void> keep_waiting(int rank) override {
    if (moves_ == Moves::all) owner_.serve_messages();
    if (moves_ != Moves::nothing) owner_.let_mpi_move_on();
    if (moves_ != Moves::nothing) owner_.watch_->wait_for(rank);
    if (owner_.watch_->is_lost()) return *owner_.watch_->verdict();
    if (owner_.process_->channel->is_anyone_gone() && is_gone_for_good(rank)) return find_out({own(), rank, false, {}});
    if (Clock::now() >= deadline()) return find_out({own(), rank, false, {}});
    return {};
  }

  [[nodiscard]] Error differs(int rank) override { return find_out({own(), rank, true, {}}); }

  [[nodiscard]] Error lost(int rank, std::string_view what) override {
    // The control connection tells a death from a departure; it hears of it at about the same time.
    const auto soon = Clock::now() + milliseconds(200);
    while (!is_gone(rank) && !owner_.watch_->is_lost() && Clock::now() < soon) {
      std::this_thread::sleep_for(milliseconds(1));
    }
    return find_out({own(), rank, false, std::string(what)});
  }

  [[nodiscard]] Clock::time_point deadline() const noexcept override {
    if (deadline_ == Clock::time_point()) deadline_ = Clock::now() + timeout();
    return deadline_;
  }

 private:
  [[nodiscard]] std::uint32_t own() const noexcept { return owner_.watch_->rank(); }
  [[nodiscard]] milliseconds timeout() const noexcept { return milliseconds(owner_.timeout_.load()); }
  [[nodiscard]] Error find_out(const DiagnosisTrigger& trigger) {
    return owner_.process_->channel->find_out(owner_.watch_, trigger, timeout());
  }
  /// What a rank sent before it went may still be on its way: the news of its end travels by another road.
  [[nodiscard]] bool is_gone_for_good(int rank) {
    constexpr auto underway = milliseconds(100);
    if (!is_gone(rank)) return false;
    const auto now = Clock::now();
    auto suspect = std::ranges::find(suspects_, rank, &Suspect::rank);
    if (suspect == suspects_.end()) suspect = suspects_.insert(suspect, {rank, now});
    return now - suspect->since >= underway;
  }
  [[nodiscard]] bool is_gone(int rank) const {
    const auto& members = owner_.watch_->members();
    if (rank != anyone) return owner_.process_->channel->is_gone(members[static_cast<std::size_t>(rank)]);
    return std::ranges::any_of(members,
                               [this](std::uint32_t member) { return owner_.process_->channel->is_gone(member); });
  }

  struct Suspect {
    int rank;
    Clock::time_point since;
  };

  Communicator& owner_;
  const Moves moves_;
  mutable Clock::time_point deadline_;
  std::vector<Suspect> suspects_;
};

/// gather_all for the device back end's own set-up.
class Communicator::CallExchange final : public Exchange {
 public:
  CallExchange(Communicator& owner, CallWatchdog& watchdog) : owner_(owner), watchdog_(watchdog) {}
  [[nodiscard]] int rank() const noexcept override { return static_cast<int>(owner_.watch_->rank()); }
  [[nodiscard]] int size() const noexcept override { return static_cast<int>(owner_.watch_->members().size()); }
  [[nodiscard]] Result<std::vector<std::string>> gather_all(std::string piece,
                                                            Clock::time_point /*deadline*/) override {
    return owner_.gather_all(std::move(piece), watchdog_);  // the watchdog has the same deadline
  }

 private:
  Communicator& owner_;
  CallWatchdog& watchdog_;
};

}  // namespace amldist::collective
