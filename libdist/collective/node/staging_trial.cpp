// Which way of staging is fastest: string instructions or streaming stores for data that other ranks read next, and for
// two ranks whole data or slices of it.
//
// It depends on the processor, and on where the ranks' processors are: with a common last-level cache streaming stores
// take twice as long as string instructions, without one half as long (decision 30). So the ranks measure. A trial
// makes all-reduces of its own, and all ranks choose the way whose slowest rank is fastest. The next trial follows some
// thousand calls later, because a virtual machine's processors move while a program runs.
#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/time/clock.hpp"
#include "collective/node/node_collectives.hpp"
#include "collective/node/node_slices.hpp"

namespace amldist::collective {
namespace {

struct Way {
  bool slices;
  Store for_others;
};
// The last two differ from the first two for two ranks only.
constexpr std::array<Way, 4> ways = {{
    {false, Store::whole_lines},
    {false, Store::streaming},
    {true, Store::whole_lines},
    {true, Store::streaming},
}};

}  // namespace

Result<void> NodeCollectives::tune_staging(std::size_t bytes) {
  const bool matters = bytes >= tuning::staging_trial_from && !slot_channel_.is_oversubscribed();
  if (is_given_ || !matters || staged_calls_++ % tuning::staging_trial_every != 0) return {};
  return try_stagings();
}

Result<void> NodeCollectives::try_stagings() {
  constexpr int attempts = 6;  // the first only brings buffers into the caches
  std::vector<float> data(tuning::staging_trial_bytes / sizeof(float));
  auto* const buffer = reinterpret_cast<std::byte*>(data.data());
  const calls::Reduction trial = {buffer, buffer, data.size(), calls::DataType::float32, calls::ReduceOp::sum};
  const std::size_t tried = slot_channel_.size() == 2 ? ways.size() : ways.size() / 2;
  std::size_t present = 0;
  Times least = {};
  least.fill(UINT64_MAX);
  for (std::size_t w = 0; w < tried; ++w) {
    if (ways[w].slices == tuned_.slices && ways[w].for_others == tuned_.for_others) present = w;
  }
  for (int attempt = 0; attempt < attempts; ++attempt) {
    for (std::size_t w = 0; w < tried; ++w) {
      tuned_.slices = ways[w].slices;
      tuned_.for_others = ways[w].for_others;
      std::ranges::fill(data, 1.0F);
      const auto took = time_staging(trial);
      if (!took) return took.error();
      if (attempt > 0) least[w] = std::min(least[w], *took);
    }
  }
  const auto way = fastest_way(least, present);
  if (!way) return way.error();
  const Way& taken = ways[*way];
  tuned_.slices = taken.slices;
  tuned_.for_others = taken.for_others;
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
