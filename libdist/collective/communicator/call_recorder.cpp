#include "collective/communicator/call_recorder.hpp"

namespace amldist::collective {

void CallRecorder::fail(Ticket ticket, const Error& error) {
  recorder_.fail(ticket, status_number(error.code));
  const std::lock_guard lock(noting_);
  recorder_.note(error.message);
}

}  // namespace amldist::collective
