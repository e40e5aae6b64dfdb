// Writes the calls of one communicator into the flight recorder of the process.
#pragma once

#include "collective/communicator/call_observer.hpp"
#include "collective/communicator/process.hpp"

namespace amldist::collective {

/// The small all-reduce calls it about 20 ns of its 90: whoever is on that path names this final class, so that the
/// compiler needs no virtual call; everybody else sees a CallObserver.
class CallRecorder final : public CallObserver {
 public:
  explicit CallRecorder(Process& process) : recorder_(process.recorder), noting_(process.noting) {}

  /// The communicator's line in the recorder, from FlightRecorder::add_communicator(). Before the first call.
  void set_communicator(std::uint32_t slot) noexcept { slot_ = slot; }
  [[nodiscard]] std::uint32_t communicator() const noexcept { return slot_; }

  [[nodiscard]] Ticket begin(const Call& call, std::uint64_t began) override {
    const bool has_peer = has_root(call.operation) || is_point_to_point(call.operation);
    return recorder_.begin({call.operation, call.type, call.redop, slot_, call.sequence,
                            call.count * size_of(call.type), has_peer ? call.root : -1},
                           began);
  }
  void complete(Ticket ticket) override { recorder_.complete(ticket); }
  void fail(Ticket ticket, const Error& error) override;
  /// The communicator was finalized.
  void close() noexcept { recorder_.close_communicator(slot_); }

 private:
  FlightRecorder& recorder_;
  std::mutex& noting_;
  std::uint32_t slot_ = 0;
};

}  // namespace amldist::collective
