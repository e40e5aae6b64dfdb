// Sends and receives that have begun and not ended. Whoever has the communicator's turn moves them: its worker, the
// program's thread where there is none, and either of them from inside a call that waits.
#pragma once

#include <memory>
#include <vector>

#include "collective/communicator/call_watchdog.hpp"

namespace amldist::collective {

class Communicator::MessageTraffic {
 public:
  explicit MessageTraffic(Communicator& owner) : owner_(owner), transport_(owner.backend_->messages()) {}

  [[nodiscard]] std::size_t size() const noexcept { return under_way_.size(); }
  /// Takes up a message of host buffers.
  void post(std::shared_ptr<Request> request);
  /// Moves what can be moved, and completes requests; whether anything moved.
  bool progress();
  /// After `idle` looks in vain: lets others have the processor, and keeps an eye on deadlines.
  void rest(int idle);

 private:
  struct UnderWay {
    UnderWay(Communicator& owner, std::shared_ptr<Request> begun);
    std::shared_ptr<Request> request;
    Call call;  ///< with its number
    CallWatchdog watchdog;
    FlightRecorder::Ticket ticket;
    std::size_t left = 0;
  };
  class Witness;

  void announce(const UnderWay& message) { owner_.watch_->enter(message.call); }
  void finish(UnderWay& message, const Result<void>& result);
  void fail(const Error& error);

  Communicator& owner_;
  Transport& transport_;
  std::vector<std::unique_ptr<UnderWay>> under_way_;  ///< oldest first
};

}  // namespace amldist::collective
