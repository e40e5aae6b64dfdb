#include "trace/diagnosis/unreceived.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "base/text/text.hpp"

namespace amldist::trace {
namespace {

using recorder_format::State;

/// A rank of the step that a message names; nullopt: it names no known one.
std::optional<std::uint32_t> peer_of(const Recording& recording, const CallRecord& call) {
  const auto* const communicator = recording.communicator(call.communicator);
  if (communicator == nullptr || call.peer < 0) return std::nullopt;
  const auto peer = static_cast<std::uint32_t>(call.peer);
  if (communicator->world_ranks.empty())
    return communicator->size == recording.size ? std::optional(peer) : std::nullopt;
  return peer < communicator->world_ranks.size() ? std::optional(communicator->world_ranks[peer]) : std::nullopt;
}

bool is_message(const CallRecord& call) {
  return call.operation == calls::Operation::send || call.operation == calls::Operation::recv;
}

/// Whether all that it has received is known, and from whom.
bool is_complete(const Recording& recording) {
  const auto is_open_receipt = [](const CallRecord& call) {
    if (call.operation != calls::Operation::recv) return false;
    return call.peer == recorder_format::any_peer || call.tag >= recorder_format::first_shared_tag;
  };
  return recording.recorded == recording.calls.size() && std::ranges::none_of(recording.calls, is_open_receipt);
}

}  // namespace

std::vector<UnreceivedMessages> find_unreceived(std::span<const Recording> recordings) {
  std::set<std::uint32_t> complete;
  for (const Recording& each : recordings) {
    if (is_complete(each)) complete.insert(each.rank);
  }
  using Key = std::tuple<std::string, std::uint32_t, std::uint32_t, std::uint16_t>;  // source, from, to, tag
  std::map<Key, std::int64_t> open;
  for (const Recording& each : recordings) {
    for (const CallRecord& call : each.calls) {
      const auto peer = is_message(call) ? peer_of(each, call) : std::nullopt;
      if (!peer || call.tag >= recorder_format::first_shared_tag || call.state == State::failed) continue;
      const bool is_send = call.operation == calls::Operation::send;
      if (is_send) ++open[{each.source, each.rank, *peer, call.tag}];
      else if (call.state == State::completed) --open[{each.source, *peer, each.rank, call.tag}];
    }
  }
  std::vector<UnreceivedMessages> found;
  for (const auto& [key, count] : open) {
    const auto& [source, from, to, tag] = key;
    if (count > 0 && complete.contains(to)) found.push_back({from, to, tag, static_cast<std::uint64_t>(count)});
  }
  std::ranges::stable_sort(found, std::greater(), &UnreceivedMessages::count);
  return found;
}

std::string describe(const UnreceivedMessages& messages) {
  return text::concat({text::count(messages.count, "message"), " from rank ", std::to_string(messages.from),
                       " to rank ", std::to_string(messages.to), " with tag ", std::to_string(messages.tag)});
}

}  // namespace amldist::trace
