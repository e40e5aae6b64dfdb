// Whether long messages are staged or fetched: the ranks measure it with the program's own calls. Internal to this
// folder.
//
// It depends on the processors, on the kernel, and on where the ranks run: fetching a 4 MiB all-reduce took 0.8 of the
// time of staging it on a Xeon, 1.3 on an EPYC whose ranks share a cache, and 2.2 on one whose ranks do not. The first
// calls but for a few, for which the kernel still has to find the staging memory, are made in both ways in turn, each
// after a barrier, and all ranks choose the way whose slowest rank is faster. Some hundred calls later they try again,
// because a virtual machine's processors move while a program runs.
#pragma once

#include <algorithm>

#include "base/time/clock.hpp"
#include "collective/node/node_collectives.hpp"

namespace amldist::collective {

template <typename Work>
Result<void> NodeCollectives::run_faster_variant(tuning::SingleCopy what, std::size_t bytes, Work work) {
  if (!could_fetch(what, bytes)) return work(false);
  if (is_given_) return work(tuned_.fetches);
  if (untried_ < tuning::single_copy_untried) {
    ++untried_;
    return work(false);
  }
  LongCalls& calls = long_calls_[static_cast<std::size_t>(what)][tuning::single_copy_class(bytes)];
  const std::uint64_t turn = calls.tried++ % tuning::single_copy_trial_every;
  if (turn == tuning::single_copy_tried) {
    const auto way = fastest_way(calls.least, calls.fetches ? 1 : 0);
    if (!way) return way.error();
    calls.fetches = *way == 1;
  }
  if (turn >= tuning::single_copy_tried) return work(calls.fetches);
  if (turn == 0) calls.least.fill(UINT64_MAX);
  const bool fetches = turn % 2 == 1;
  if (auto status = barrier(); !status) return status;
  const auto before = Clock::now();
  auto done = work(fetches);
  const auto took = static_cast<std::uint64_t>(std::chrono::nanoseconds(Clock::now() - before).count());
  calls.least[fetches ? 1 : 0] = std::min(calls.least[fetches ? 1 : 0], took * 1000 / bytes);
  return done;
}

}  // namespace amldist::collective
