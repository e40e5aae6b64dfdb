// Writes the calls of one communicator into the flight recorder of the process.
#pragma once

#include "collective/communicator/context/call_observer.hpp"
#include "collective/communicator/context/process.hpp"

namespace amldist::collective {

/// The small all-reduce calls it about 20 ns of its 90: code on that path uses this final class, so that the compiler
/// needs no virtual call; all other code uses CallObserver.
class CallRecorder final : public CallObserver {
 public:
  explicit CallRecorder(Process& process) : process_(process) {}

  /// Adds the communicator to the process's recorder, if there is one. Before the first call. `watch` must live as long
  /// as this. `parent`: the entry of the communicator that it was made from.
  void add(const world::CommWatch& watch, std::string_view name = {}, std::uint32_t parent = 0);
  [[nodiscard]] std::uint32_t communicator() const noexcept { return slot_; }

  [[nodiscard]] Ticket begin(const calls::Call& call, std::uint64_t began) override {
    return recorder_ == nullptr ? 0 : recorder_->begin(recorded(call), began);
  }
  void complete_at(Ticket ticket, std::uint64_t now) override {
    if (recorder_ != nullptr) recorder_->complete(ticket, now);
  }
  void complete(Ticket ticket, std::uint64_t began, std::uint64_t ended) noexcept {
    if (recorder_ != nullptr) recorder_->complete(ticket, began, ended);
  }
  void record_ended(const calls::Call& call, std::uint64_t began, std::uint64_t ended) override {
    if (recorder_ != nullptr) recorder_->record_ended(recorded(call), began, ended);
  }
  void complete(Ticket ticket) override {
    if (recorder_ != nullptr) recorder_->complete(ticket);
  }
  void fail(Ticket ticket, const Error& error) override;
  void close() noexcept {
    if (recorder_ != nullptr) recorder_->close_communicator(slot_);
  }

 private:
  [[nodiscard]] trace::RecordedCall recorded(const calls::Call& call) const noexcept {
    return {call.operation,
            call.type,
            call.redop,
            slot_,
            call.sequence,
            call.count * size_of(call.type),
            trace::recorder_format::peer_of(call),
            trace::recorder_format::tag_of(call)};
  }
  [[nodiscard]] std::optional<trace::recorder_format::WrongCall> wrong_call() const;

  Process& process_;
  const world::CommWatch* watch_ = nullptr;  ///< of the communicator; nullptr before add()
  trace::FlightRecorder* recorder_ = nullptr;
  std::uint32_t slot_ = 0;
};

}  // namespace amldist::collective
