#include "collective/communicator/context/refused_calls.hpp"

namespace amldist::collective {

Error RefusedCalls::refuse(const calls::Call& late, std::uint64_t now) {
  const Error reason = *context_.watch().diagnosis();
  if (!has_refused_.exchange(true)) {
    calls::Call call = late;
    call.sequence = numbers_.peek(late);
    observer_.fail(observer_.begin(call, now), reason);
  }
  return {Errc::aborted, reason.message};
}

}  // namespace amldist::collective
