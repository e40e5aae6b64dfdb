// Which way of staging is fastest: string instructions or streaming stores for data that other ranks read next, and for
// two ranks whole data or slices of it, and whether they trade their staging memory.
//
// It depends on the processor, and on where the ranks' processors are: with a common last-level cache streaming stores
// take twice as long as string instructions, without one half as long (decision 30). So the ranks measure. A trial
// makes all-reduces of its own, and all ranks choose the way whose slowest rank is fastest. The next trial follows some
// thousand calls later, because a virtual machine's processors move while a program runs.
#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <vector>

#include "base/time/clock.hpp"
#include "collective/node/node_collectives.hpp"
#include "collective/node/node_slices.hpp"

namespace amldist::collective {
namespace {

// What streaming stores write has left the caches, so it does not matter who has read it.
constexpr std::array<NodeTuning, 6> ways = {{
    {.for_others = Store::whole_lines},
    {.for_others = Store::streaming},
    {.slices = true, .for_others = Store::whole_lines},
    {.slices = true, .for_others = Store::streaming},
    {.trades = true, .for_others = Store::whole_lines},
    {.slices = true, .trades = true, .for_others = Store::whole_lines},
}};
constexpr std::size_t for_many_ranks = 2;  ///< the first ones; the others differ from them for two ranks only

constexpr bool are_alike(const NodeTuning& one, const NodeTuning& other) noexcept {
  return one.slices == other.slices && one.trades == other.trades && one.for_others == other.for_others;
}

}  // namespace

Result<void> NodeCollectives::tune_staging(std::size_t bytes) {
  const bool matters = bytes >= tuning::staging_trial_from && !slot_channel_.is_oversubscribed();
  if (is_given_ || !matters || staged_calls_++ % tuning::staging_trial_every != 0) return {};
  return try_stagings();
}

void NodeCollectives::stage_as(const NodeTuning& tuning) noexcept {
  tuned_.slices = tuning.slices;
  tuned_.trades = tuning.trades;
  tuned_.for_others = tuning.for_others;
  slot_channel_.trade_slots(tuning.trades);
}

/// The attempts of a way come one after the other: memory that was written another way is in other caches.
Result<void> NodeCollectives::try_stagings() {
  constexpr int attempts = 7;
  constexpr int untimed = 4;  // in these, the ranks come to write to what the last attempt but three has left
  std::vector<float> data(tuning::staging_trial_bytes / sizeof(float));
  auto* const buffer = reinterpret_cast<std::byte*>(data.data());
  const calls::Reduction trial = {buffer, buffer, data.size(), calls::DataType::float32, calls::ReduceOp::sum};
  const std::size_t tried = slot_channel_.size() == 2 ? ways.size() : for_many_ranks;
  const auto present = std::ranges::find_if(ways, [&](const NodeTuning& way) { return are_alike(way, tuned_); });
  Times least = {};
  least.fill(UINT64_MAX);
  for (std::size_t w = 0; w < tried; ++w) {
    stage_as(ways[w]);
    for (int attempt = 0; attempt < attempts; ++attempt) {
      std::ranges::fill(data, 1.0F);
      const auto took = time_staging(trial);
      if (!took) return took.error();
      if (attempt >= untimed) least[w] = std::min(least[w], *took);
    }
  }
  assert(present != ways.end());
  const auto way = fastest_way(least, static_cast<std::size_t>(present - ways.begin()));
  if (!way) return way.error();
  stage_as(ways[*way]);
  return {};
}

Result<std::size_t> NodeCollectives::fastest_way(const Times& own, std::size_t present) {
  if (auto status = slot_channel_.begin(); !status) return status.error();
  std::memcpy(slot_channel_.own_line(), &own, sizeof own);
  slot_channel_.publish();
  if (auto status = slot_channel_.await_all(); !status) return status.error();
  Times slowest = {};
  for (std::uint32_t r = 0; r < slot_channel_.size(); ++r) {
    Times theirs = {};
    std::memcpy(&theirs, slot_channel_.line_of(r), sizeof theirs);
    for (std::size_t way = 0; way < slowest.size(); ++way) slowest[way] = std::max(slowest[way], theirs[way]);
  }
  const auto least = std::ranges::min_element(slowest);
  const bool stays = *least >= slowest[present] - slowest[present] / 20;
  return stays ? present : static_cast<std::size_t>(least - slowest.begin());
}

/// Nanoseconds of one all-reduce that all ranks begin together.
Result<std::uint64_t> NodeCollectives::time_staging(const calls::Reduction& trial) {
  if (auto status = barrier(); !status) return status.error();
  offer({Mode::staged, 0, 0});
  const auto before = Clock::now();
  const auto done =
      folds_whole(tuning::staging_trial_bytes) ? allreduce_whole(trial, all_ranks) : allreduce_sliced(trial, all_ranks);
  if (!done) return done.error();
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - before).count());
}

}  // namespace amldist::collective
