// The all-gathers of one communicator over the control channel: to set it up, to open NCCL, and for split.
#pragma once

#include <string>
#include <vector>

#include "calls/exchange.hpp"
#include "collective/communicator/context/comm_context.hpp"

namespace amldist::collective {

/// Numbers the gathers, so that the channel can tell them apart. Used by the thread that runs the communicator's calls.
class ControlGather {
 public:
  explicit ControlGather(CommContext& context) : context_(context) {}

  /// Every rank's piece, or those of this node's ranks; collective over the communicator.
  [[nodiscard]] Result<calls::Pieces> gather_all(std::string piece, calls::Watchdog& watchdog,
                                                 calls::GatherScope scope = calls::GatherScope::all_ranks) {
    if (context_.size() == 1) {
      calls::Pieces own;
      own.add({0, 1, std::move(piece)});
      return own;
    }
    return context_.channel().gather_all(context_.shared_watch(), gathers_++, std::move(piece), scope, watchdog);
  }

  [[nodiscard]] CommContext& context() const noexcept { return context_; }

 private:
  CommContext& context_;
  std::uint64_t gathers_ = 0;
};

/// The same as an Exchange, for the length of one call. The watchdog has the deadline.
class ControlExchange final : public calls::Exchange {
 public:
  ControlExchange(ControlGather& gather, calls::Watchdog& watchdog) : gather_(gather), watchdog_(watchdog) {}
  [[nodiscard]] int rank() const noexcept override { return static_cast<int>(gather_.context().rank()); }
  [[nodiscard]] int size() const noexcept override { return static_cast<int>(gather_.context().size()); }
  [[nodiscard]] Result<std::vector<std::string>> gather_all(std::string piece,
                                                            Clock::time_point /*deadline*/) override {
    const auto pieces = gather_.gather_all(std::move(piece), watchdog_);
    if (!pieces) return pieces.error();
    return pieces->by_rank();
  }

 private:
  ControlGather& gather_;
  calls::Watchdog& watchdog_;
};

}  // namespace amldist::collective
