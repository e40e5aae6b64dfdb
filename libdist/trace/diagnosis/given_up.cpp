#include "trace/diagnosis/given_up.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

namespace amldist::trace {

const CallRecord* given_up_in(const Recording& recording) {
  if (recording.source != "mpi") return nullptr;
  const auto& calls = recording.calls;
  const auto newest = std::find_if(calls.rbegin(), calls.rend(),
                                   [](const CallRecord& call) { return call.operation != calls::Operation::finalize; });
  return newest != calls.rend() && newest->state == recorder_format::State::failed ? &*newest : nullptr;
}

std::set<const Recording*> ranks_that_gave_up(std::span<const Recording> recordings) {
  std::set<const Recording*> found;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::set<const Recording*>> by_call;  // communicator and number
  for (const Recording& each : recordings) {
    const CallRecord* const failed = given_up_in(each);
    if (failed == nullptr) continue;
    found.insert(&each);
    const auto* const on = each.communicator(failed->communicator);
    if (on == nullptr || !recorder_format::is_collective(failed->operation)) continue;
    auto& all = by_call[{on->id, failed->sequence}];
    all.insert(&each);
    if (all.size() < on->size) continue;
    for (const Recording* const one : all) found.erase(one);
  }
  return found;
}

}  // namespace amldist::trace
