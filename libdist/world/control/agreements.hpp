// The agreements of all communicators of this process: between the threads that make the calls and the control thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "world/control/agreement.hpp"
#include "world/control/comm_watch.hpp"

namespace amldist::world {

/// How a round ended for this rank.
struct AgreementOutcome {
  std::optional<Exclusion> own_exclusion;  ///< this rank has no part in it, and there is no decision
  Decision decision;
};

/// One call's part in a round: the calling thread waits, the control thread completes it.
class AgreementTicket {
 public:
  AgreementTicket(std::uint64_t round, std::uint64_t needed) : round_(round), needed_(needed) {}

  [[nodiscard]] std::uint64_t round() const noexcept { return round_; }
  [[nodiscard]] AgreementOutcome wait();
  /// A rank was excluded since the round was opened, or has given flags without some of the `needed` ones: whatever
  /// this rank is doing meanwhile to be able to give them is in vain.
  [[nodiscard]] bool is_hopeless() const noexcept { return hopeless_.load(std::memory_order_acquire); }

 private:
  friend class Agreements;
  void complete(AgreementOutcome outcome);

  const std::uint64_t round_;
  const std::uint64_t needed_;
  std::size_t excluded_before_ = 0;
  std::atomic<bool> hopeless_ = false;
  std::mutex mutex_;
  std::condition_variable completed_;
  std::optional<AgreementOutcome> outcome_;
};

/// Used by the control thread only.
class Agreements {
 public:
  using Find = std::function<std::shared_ptr<CommWatch>(std::uint64_t communicator)>;
  /// `find`: a communicator of this process; nullptr: it has none of this number.
  Agreements(FailureDetectorHost& host, Find find) : host_(host), find_(std::move(find)) {}

  void open(const std::shared_ptr<CommWatch>& watch, const std::shared_ptr<AgreementTicket>& ticket,
            const Agreement::Limits& limits);
  void arrive(const CommWatch& watch, const AgreementTicket& ticket, std::uint64_t flags, std::uint64_t purposes);
  void take(std::uint32_t world_rank, Frame& frame);
  void poll();
  [[nodiscard]] Clock::time_point next_poll() const;

 private:
  struct OfCommunicator {
    std::shared_ptr<CommWatch> watch;
    Agreement agreement;
    std::shared_ptr<AgreementTicket> ticket;  ///< of the call in progress
  };

  [[nodiscard]] OfCommunicator& of(const std::shared_ptr<CommWatch>& watch);
  void tell(OfCommunicator& one);

  FailureDetectorHost& host_;
  const Find find_;
  std::map<std::uint64_t, OfCommunicator> agreements_;
};

}  // namespace amldist::world
