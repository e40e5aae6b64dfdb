// How far the ranks of a node are from each other: the time in which one copies what another has just written. Ranks
// that share a last-level cache take a third of the time of those on different core complexes, sockets or stops of a
// mesh; then staging a reduction is cheap, and fetching it is not worth the kernel's part.
//
// It is measured again from time to time: a virtual machine's processors move while a program runs. All ranks make the
// same long reductions, so they need not agree about when.
#include <algorithm>
#include <cstring>

#include "collective/node/node_collectives.hpp"
#include "os/clock.hpp"

namespace amldist::collective {

Result<void> NodeCollectives::look_at_distance(tuning::SingleCopy what, std::size_t bytes) {
  const bool matters = peers_ != nullptr && bytes >= tuning::single_copy_from(what, slot_channel_.size(), true);
  if (is_given_ || !matters || long_reductions_++ % tuning::distance_every != 0) return {};
  const auto slowest = measure_distance();
  if (!slowest) return slowest.error();
  tuned_.are_far = *slowest >= tuning::far_from_ns;
  return {};
}

/// Nanoseconds for tuning::distance_bytes: the least of some attempts of the rank for which that is most. All ranks get
/// the same.
Result<std::uint64_t> NodeCollectives::measure_distance() {
  constexpr int attempts = 8;
  constexpr std::size_t bytes = tuning::distance_bytes;
  const std::uint32_t next = (slot_channel_.rank() + 1) % slot_channel_.size();
  std::uint64_t least = UINT64_MAX;
  for (int i = 0; i < attempts; ++i) {
    if (auto begun = slot_channel_.begin(); !begun) return begun.error();
    std::byte* const own = slot_channel_.own_slot();
    copy_for_others(own, own + bytes, bytes);
    slot_channel_.publish();
    if (auto came = slot_channel_.await(next); !came) return came.error();
    const auto before = Clock::now();
    copy(own + bytes, slot_channel_.slot_of(next), bytes);
    const std::chrono::nanoseconds took = Clock::now() - before;
    least = std::min(least, static_cast<std::uint64_t>(took.count()));
  }
  if (auto begun = slot_channel_.begin(); !begun) return begun.error();
  std::memcpy(slot_channel_.own_line(), &least, sizeof least);
  slot_channel_.publish();
  if (auto came = slot_channel_.await_all(); !came) return came.error();
  std::uint64_t slowest = 0;
  for (std::uint32_t r = 0; r < slot_channel_.size(); ++r) {
    std::uint64_t theirs = 0;
    std::memcpy(&theirs, slot_channel_.line_of(r), sizeof theirs);
    slowest = std::max(slowest, theirs);
  }
  return slowest;
}

}  // namespace amldist::collective
