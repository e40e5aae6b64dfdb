// Records one call of the program: its arguments and its times.

#include "trace/mpi/tracer.hpp"

namespace amldist::trace::mpi {
namespace {
constexpr Data nothing{};

/// Between two groups only the arguments of some ranks count, so they are not recorded.
trace::RecordedCall record_of(const Communicator& communicator, std::uint64_t sequence, const OfAll& call,
                              const Data& given, const void* site) noexcept {
  const Tracer& trace = tracer();
  const Data& data = communicator.is_between ? nothing : given;
  return {call.operation,
          trace.type_of(data.type),
          trace.op_of(data.op),
          communicator.slot,
          sequence,
          trace.bytes_of(data.count, data.type),
          communicator.is_between ? -1 : call.root,
          call.function,
          site};
}
}  // namespace

/// For a call of all members: counts it. False if its communicator is not recorded.
bool Traced::number(const OfAll& call) noexcept {
  Communicator* const communicator = tracer().find(call.comm, thread_);
  if (communicator == nullptr) return false;
  parent_ = communicator;
  sequence_ = tracer().next_number(*communicator);
  return true;
}

void Traced::begin(Blocking /*how*/, const OfAll& call, const Data& data) noexcept {
  if (number(call)) ticket_ = tracer().recorder().begin(record_of(*parent_, sequence_, call, data, site_));
}

void Traced::begin(Posted /*how*/, const OfAll& call, const Data& data) noexcept {
  if (!number(call)) return;
  call_ = record_of(*parent_, sequence_, call, data, site_);
  ticket_ = tracer().recorder().enqueue(*call_);
}

void Traced::begin(Blocking /*how*/, const OfOpened& call, const Data& data) noexcept {
  Tracer& trace = tracer();
  Communicator* const opened = trace.find_opened(call.handle);
  if (opened == nullptr) return;
  ticket_ = trace.recorder().begin({call.operation, trace.type_of(data.type), calls::ReduceOp::sum, opened->slot,
                                    trace.next_number(*opened), trace.bytes_of(data.count, data.type), -1,
                                    call.function, site_});
}

void Traced::begin(Posted /*how*/, const OfOpened& call, const Data& data) noexcept {
  Tracer& trace = tracer();
  Communicator* const opened = trace.find_opened(call.handle);
  if (opened == nullptr) return;
  call_ = {call.operation,
           trace.type_of(data.type),
           calls::ReduceOp::sum,
           opened->slot,
           trace.next_number(*opened),
           trace.bytes_of(data.count, data.type),
           -1,
           call.function,
           site_};
  ticket_ = trace.recorder().enqueue(*call_);
}

/// On no communicator, so that its rank counts as waiting, and nobody is blamed for that.
void Traced::begin(Blocking /*how*/, const OfWindow& call, const Data& /*data*/) noexcept {
  ticket_ = tracer().recorder().begin({other::window, unknown_type, calls::ReduceOp::sum,
                                       trace::recorder_format::no_slot, 0, 0, -1, call.function, site_});
}

namespace {
/// The record of a message; nullopt if the call is not a message.
std::optional<trace::RecordedCall> message(const OfTwo& call, const Data& data, const void* site) noexcept {
  Tracer& trace = tracer();
  if (call.peer == trace.abi().no_process) return std::nullopt;
  const Communicator* const communicator = trace.find(call.comm);
  if (communicator == nullptr) return std::nullopt;
  const bool any = call.peer == trace.abi().any_source;
  const std::uint16_t tag = call.tag == trace.abi().any_tag
                                ? trace::recorder_format::any_tag
                                : trace::recorder_format::short_tag(static_cast<unsigned>(call.tag));
  return trace::RecordedCall{call.operation,
                             trace.type_of(data.type),
                             calls::ReduceOp::sum,
                             communicator->slot,
                             0,
                             trace.bytes_of(data.count, data.type),
                             any ? trace::recorder_format::any_peer : call.peer + communicator->peers_at,
                             tag,
                             site};
}
}  // namespace

void Traced::begin(Blocking /*how*/, const OfTwo& call, const Data& data) noexcept {
  if (const auto record = message(call, data, site_)) ticket_ = tracer().recorder().begin(*record);
}

void Traced::begin(Posted /*how*/, const OfTwo& call, const Data& data) noexcept {
  call_ = message(call, data, site_);
  if (call_) ticket_ = tracer().recorder().enqueue(*call_);
}

void Traced::begin(Persistent /*how*/, const OfTwo& call, const Data& data) noexcept {
  call_ = message(call, data, site_);
}

/// The preparation is itself a call of all members, who must make it in the same order.
void Traced::begin(Persistent /*how*/, const OfAll& call, const Data& data) noexcept {
  begin(Blocking{}, OfAll{call.comm, other::prepare, -1}, Data{0, no_type(), no_op()});
  if (parent_ == nullptr) return;
  const Tracer& trace = tracer();
  call_ = {call.operation,
           trace.type_of(data.type),
           trace.op_of(data.op),
           0,
           0,
           trace.bytes_of(data.count, data.type),
           call.root,
           0,
           site_};
}

int Traced::prepared(int status, const MPI_Request* request) const noexcept {
  static_cast<void>(ended(status));
  if (status != 0 || !call_) return status;
  if (parent_ != nullptr) tracer().prepare(*request, *call_, *parent_, sequence_);
  else tracer().prepare(*request, *call_);
  return status;
}

int Traced::posted(int status, const MPI_Request* request, const MPI_Comm* made) const noexcept {
  if (ticket_ == 0) return status;
  if (status != 0) {
    tracer().fail(ticket_, status);
    return status;
  }
  const std::uint64_t id = made != nullptr ? Tracer::id_of_made(*parent_, sequence_) : 0;
  tracer().remember(*request, {.ticket = ticket_, .call = *call_, .made = made, .id_of_made = id});
  return status;
}

int Traced::closed(int status, std::uintptr_t handle) const noexcept {
  if (status == 0 && ticket_ != 0) tracer().closed(handle);
  return ended(status);
}

int Traced::made(int status, const MPI_Comm* made) const noexcept {
  static_cast<void>(ended(status));
  if (status == 0 && ticket_ != 0) tracer().add(*made, Tracer::id_of_made(*parent_, sequence_));
  return status;
}

int Traced::joined(int status, const MPI_Comm* made) const noexcept {
  static_cast<void>(ended(status));
  if (status == 0 && thread_.depth == 1) tracer().add_joined(*made);
  return status;
}

}  // namespace amldist::trace::mpi
