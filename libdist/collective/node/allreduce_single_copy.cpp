// All-reduce in a single copy: a reduce-scatter followed by an all-gather, as in Rabenseifner's algorithm, on private
// buffers. Every rank fetches its slice of all ranks' data into its staging buffer, which stays in its cache, folds it,
// and fetches the other slices of the result from the buffers of the ranks that computed them.
//
// Waits: 3. Compared with staging, a rank neither copies its data out nor reads it twice. Sources: R. Rabenseifner,
// "Optimization of Collective Reduction Operations", ICCS 2004; S. Chakraborty, H. Subramoni, D. Panda,
// "Contention-aware Kernel-Assisted MPI Collectives", CLUSTER 2017.
#include <algorithm>

#include "collective/node/node_collectives.hpp"
#include "collective/node/node_slices.hpp"
#include "collective/tuning/algorithm_choice.hpp"

namespace amldist::collective {

Result<NodeCollectives::Agreement> NodeCollectives::allreduce_single_copy(const calls::Reduction& what) {
  if (auto status = show(what.send, what.recv); !status) return status.error();
  if (auto status = slot_channel_.await_all(); !status) return status.error();
  if (agreement(0) == Agreement::mixed) return Agreement::mixed;
  for (std::uint32_t r = 0; r < slot_channel_.size(); ++r) offers_[r] = offer_of(r, 0);
  if (auto status = fold_fetched(what); !status) return status.error();
  if (auto status = fetch_results(what); !status) return status.error();
  if (auto status = finish_reading(); !status) return status.error();
  return Agreement::of_private;
}

Result<void> NodeCollectives::fold_fetched(const calls::Reduction& what) {
  const std::size_t step = tuning::single_copy_step(slot_channel_.size());
  const auto [begin, end] = own_slice(what, slot_channel_);
  for (std::size_t at = begin; at < end; at += step) {
    if (auto status = fold_step(what, what.recv + at, at, at, std::min(step, end - at)); !status) return status;
  }
  return {};
}

/// Folds a step of all ranks' data. The others' data is fetched into the own slot, from `at` on, after the addresses
/// that they showed; `to` may be there, too.
Result<void> NodeCollectives::fold_step(const calls::Reduction& what, std::byte* to, std::size_t own_at, std::size_t at,
                                        std::size_t bytes) {
  const std::uint32_t ranks = slot_channel_.size();
  const std::uint32_t own = slot_channel_.rank();
  std::byte* fetched = fetched_steps();
  sources_[own] = what.send + own_at;
  for (std::uint32_t k = 1; k < ranks; ++k, fetched += bytes) {
    const std::uint32_t r = (own + k) % ranks;
    if (auto status = fetch(r, fetched, offers_[r].send + at, bytes); !status) return status;
    sources_[r] = fetched;
  }
  kernels_.fold({to, nullptr, sources_.data(), ranks, bytes / size_of(what.type), what.divisor, Store::cached},
                what.type, what.op);
  return {};
}

Result<void> NodeCollectives::fetch_results(const calls::Reduction& what) {
  const std::uint32_t ranks = slot_channel_.size();
  const std::size_t unit = size_of(what.type);
  const Slices cut = slices_of(what.count, ranks, unit);
  if (auto status = slot_channel_.begin(); !status) return status;
  slot_channel_.publish();
  for (std::uint32_t k = 1; k < ranks; ++k) {
    const std::uint32_t r = (slot_channel_.rank() + k) % ranks;
    const std::size_t at = cut.begin(r) * unit;
    if (auto status = slot_channel_.await(r); !status) return status;
    if (auto status = fetch(r, what.recv + at, offers_[r].recv + at, cut.size(r) * unit); !status) return status;
  }
  return {};
}

}  // namespace amldist::collective
