#include "collective/communicator/host/unreceived_messages.hpp"

#include <algorithm>
#include <string>

#include "base/text/text.hpp"

namespace amldist::collective {

Result<void> check_all_received(CommContext& context, HostBackend& backend, const SequenceNumbers& numbers,
                                const calls::Call& finalize, calls::Watchdog& watchdog) {
  std::uint64_t due = 0;
  calls::Call tally = finalize;
  tally.operation = calls::Operation::reduce_scatter;
  tally.type = calls::DataType::uint64;
  tally.count = 1;
  tally.send = numbers.sent().data();
  tally.recv = &due;
  if (auto status = backend.start(tally).finish(watchdog); !status) return status;
  // A rank that has not received all messages, and how many it left.
  const std::uint64_t left = due - std::min(due, numbers.received());
  std::uint64_t found =
      left == 0 ? 0 : (std::uint64_t{context.rank()} + 1) << 32 | std::min<std::uint64_t>(left, UINT32_MAX);
  tally.operation = calls::Operation::allreduce;
  tally.redop = calls::ReduceOp::max;
  tally.send = tally.recv = &found;
  if (auto told = backend.start(tally).finish(watchdog); !told || found == 0) return told;
  const auto rank = static_cast<std::uint32_t>((found >> 32) - 1);
  const std::uint64_t number = found & UINT32_MAX;
  const std::string sentence = text::concat(
      {calls::describe(finalize), ": ", context.name_of(rank), " has come to it without having received ",
       std::to_string(number), number == 1 ? " message that was sent to it" : " messages that were sent to it"});
  if (context.rank() == 0) context.channel().tell(sentence);
  // No rank ends the communicator before all know: rank 0 would be told of it, and not print.
  tally.operation = calls::Operation::barrier;
  tally.count = 0;
  static_cast<void>(backend.start(tally).finish(watchdog));
  return Error{Errc::peer, sentence};
}

}  // namespace amldist::collective
