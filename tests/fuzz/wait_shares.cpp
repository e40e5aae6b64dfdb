// What a node tells srun, or rank 0's node, about the waits of its ranks: whoever has the step's token can send it.
#include "step/messages/wait_shares.hpp"

#include "fuzz.hpp"

namespace amldist::fuzz::wait_shares {
namespace {

constexpr std::uint32_t tasks = 1000;

void check(const trace::OwnWaits& rank) {
  require(rank.rank < tasks && rank.local_rank < tasks, "the rank is one of the step's");
  require(rank.part >= 0 && rank.part <= rank.at_most && rank.at_most <= 1, "a part is one");
  require(rank.awaited.size() <= trace::OwnWaits::most_awaited, "nobody waits for more");
  for (const auto& each : rank.awaited) require(each.is_group || each.id < tasks, "who is waited for is of the step");
}

}  // namespace

const std::string_view separator = ",";

void try_input(std::string_view input) {
  constexpr std::size_t most_bytes = std::size_t{1} << 20;
  const auto ranks = within(most_bytes, [input] { return step::parse_wait_shares(input, tasks); });
  if (!ranks) return;
  require(input.size() <= step::longest_wait_shares, "a longer text is refused");
  std::vector<std::string> texts;
  for (const auto& each : *ranks) {
    check(each);
    step::add_wait_share(each.host, each, texts);
  }
  for (const std::string& each : texts)
    require(step::parse_wait_shares(each, tasks).has_value(), "what is written is read");
  const auto found = within(8 * most_bytes, [&] { return trace::straggler_of(*ranks); });
  if (found) require_sentence(trace::sentence(*found));
}

}  // namespace amldist::fuzz::wait_shares
