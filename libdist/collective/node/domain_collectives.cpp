#include "collective/node/domain_collectives.hpp"

#include <algorithm>
#include <cstring>

#include "collective/kernels/copy_bytes.hpp"

namespace amldist::collective {
namespace {

constexpr std::size_t group_page = 4096;
/// For whole messages, which are short.
constexpr std::size_t group_slot = tuning::one_round_below;
/// A rank is in one group of each level; more levels than these there are never.
constexpr std::size_t most_levels = 3;

/// Of each member: a group of several takes at most as many times more.
std::size_t member_bytes() noexcept { return SlotChannel::memory_bytes(1, group_slot); }

std::size_t pages_of(std::size_t bytes) noexcept { return (bytes + group_page - 1) / group_page * group_page; }

const std::vector<std::uint32_t>* group_with(const std::vector<std::vector<std::uint32_t>>& groups,
                                             std::uint32_t rank) noexcept {
  const auto found =
      std::ranges::find_if(groups, [rank](const auto& group) { return std::ranges::binary_search(group, rank); });
  return found != groups.end() ? &*found : nullptr;
}

}  // namespace

/// A rank's cache line in shared memory. Only its rank writes it.
struct alignas(64) DomainCollectives::Published {
  std::int32_t cache, memory, socket, is_given;
  std::atomic<std::uint64_t> call;  ///< its number, in the upper half, and its signature; 0: none yet
};

// ---- who makes another call ----
/// Ranks that make different calls may wait for each other in different channels, where neither sees the other's
/// signature. So each shows its call, and who has waited for long looks there.
class DomainCollectives::CallComparison final : public calls::Watchdog {
 public:
  CallComparison(Published* published, const NodeGroup& node) : published_(published), node_(node) {}

  void begin_call(std::uint32_t signature, calls::Watchdog& watchdog) noexcept {
    under_ = &watchdog;
    own_ = (own_ >> 32) + 1;
    own_ = own_ << 32 | signature;
    published_[node_.rank].call.store(own_, std::memory_order_relaxed);
  }

  [[nodiscard]] Result<void> keep_waiting(int rank) override {
    const auto found = std::ranges::lower_bound(node_.communicator_ranks, rank);
    if (found != node_.communicator_ranks.end() && *found == rank) {
      const auto& theirs = published_[found - node_.communicator_ranks.begin()];
      const std::uint64_t call = theirs.call.load(std::memory_order_relaxed);
      if (call >> 32 == own_ >> 32 && call != own_) return under_->differs(rank);
    }
    return under_->keep_waiting(rank);
  }
  [[nodiscard]] Error differs(int rank) override { return under_->differs(rank); }
  [[nodiscard]] Error lost(int rank, std::string_view what) override { return under_->lost(rank, what); }
  void troubled(int rank, std::string_view why) override { under_->troubled(rank, why); }
  [[nodiscard]] Clock::time_point deadline() const noexcept override { return under_->deadline(); }
  [[nodiscard]] bool is_unawaited() const noexcept override { return under_->is_unawaited(); }

 private:
  Published* const published_;
  const NodeGroup& node_;
  calls::Watchdog* under_ = nullptr;
  std::uint64_t own_ = 0;
};

// ---- groups ----
/// Of one level, with this rank in it. A rank that is alone has nothing to exchange.
class DomainCollectives::Group {
 public:
  Group(std::byte* memory, const std::vector<std::uint32_t>& ranks, const SlotChannel& node, const Reductions& kernels)
      : ranks_(ranks),
        channel_(memory, place_in(ranks, node.place()), group_slot, node.is_oversubscribed()),
        collectives_(channel_, kernels, nullptr, nullptr) {}

  [[nodiscard]] bool is_alone() const noexcept { return ranks_.size() == 1; }
  [[nodiscard]] std::uint32_t leader() const noexcept { return ranks_.front(); }
  [[nodiscard]] bool has(std::uint32_t rank) const noexcept { return std::ranges::binary_search(ranks_, rank); }

  void begin_call(std::uint32_t signature, calls::Watchdog& watchdog) noexcept {
    channel_.begin_call(signature);
    channel_.wait_under(watchdog);
  }
  [[nodiscard]] Result<void> barrier() { return collectives_.barrier(); }
  [[nodiscard]] Result<void> allreduce(const calls::Reduction& what) { return collectives_.allreduce(what); }
  /// `root`: a rank of the node, in this group.
  [[nodiscard]] Result<void> reduce(const calls::Reduction& what, std::uint32_t root) {
    return is_alone() ? Result<void>() : collectives_.reduce(what, index_of(root));
  }
  [[nodiscard]] Result<void> broadcast(std::byte* buffer, std::size_t bytes, std::uint32_t root) {
    return is_alone() ? Result<void>() : collectives_.broadcast(buffer, bytes, index_of(root));
  }

 private:
  [[nodiscard]] std::uint32_t index_of(std::uint32_t rank) const noexcept {
    return static_cast<std::uint32_t>(std::ranges::lower_bound(ranks_, rank) - ranks_.begin());
  }
  [[nodiscard]] static NodeGroup place_in(const std::vector<std::uint32_t>& ranks, const NodeGroup& node) {
    NodeGroup out = {0, static_cast<std::uint32_t>(ranks.size()), {}, node.host};
    for (const std::uint32_t rank : ranks) {
      if (rank == node.rank) out.rank = static_cast<std::uint32_t>(out.communicator_ranks.size());
      out.communicator_ranks.push_back(node.communicator_ranks[rank]);
    }
    return out;
  }

  const std::vector<std::uint32_t>& ranks_;
  SlotChannel channel_;
  NodeCollectives collectives_;
};

std::size_t DomainCollectives::memory_bytes(std::uint32_t ranks) noexcept {
  if (!has_levels(ranks)) return 0;
  return pages_of(ranks * sizeof(Published)) + most_levels * ranks * member_bytes();
}

void DomainCollectives::publish(std::byte* memory, std::uint32_t rank, const NodePlace& place) noexcept {
  auto& own = reinterpret_cast<Published*>(memory)[rank];
  own.cache = place.processors.cache;
  own.memory = place.processors.memory;
  own.socket = place.processors.socket;
  own.is_given = place.is_given ? 1 : 0;
}

DomainCollectives::DomainCollectives(NodeCollectives& all, SlotChannel& rounds, const Reductions& kernels,
                                     std::byte* memory)
    : all_(all), rounds_(rounds) {
  if (memory == nullptr) return;
  auto* const published = reinterpret_cast<Published*>(memory);
  std::vector<NodePlace> places;
  places.reserve(rounds.size());
  for (const Published& each : std::span(published, rounds.size()))
    places.push_back({{each.cache, each.memory, each.socket}, each.is_given != 0});
  const NodeDivision division = divide_node(places, rounds.is_oversubscribed());
  text_ = division.text;
  if (division.levels.empty()) return;
  comparison_ = std::make_unique<CallComparison>(published, rounds.place());
  find_levels(memory + pages_of(rounds.size() * sizeof(Published)), division, kernels);
}

DomainCollectives::~DomainCollectives() = default;

/// Groups lie one behind the other, with room for each member, so all ranks find them without a word.
void DomainCollectives::find_levels(std::byte* memory, const NodeDivision& division, const Reductions& kernels) {
  places_ = division.levels;
  agents_.resize(places_.size());
  partial_.resize(tuning::one_round_below);
  for (const auto& level : places_) {
    for (const auto& group : level) {
      if (std::ranges::binary_search(group, rounds_.rank()))
        levels_.push_back(std::make_unique<Group>(memory, group, rounds_, kernels));
      memory += group.size() * member_bytes();
    }
  }
}

void DomainCollectives::begin_call(std::uint32_t signature, calls::Watchdog& watchdog) {
  comparison_->begin_call(signature, watchdog);
  rounds_.wait_under(*comparison_);
  for (const auto& group : levels_) group->begin_call(signature, *comparison_);
}

void DomainCollectives::find_agents(std::uint32_t root) {
  std::uint32_t agent = root;
  for (std::size_t level = 0; level < places_.size(); ++level) {
    agents_[level] = agent;
    agent = group_with(places_[level], agent)->front();
  }
}

std::size_t DomainCollectives::meeting_level() const noexcept {
  std::size_t level = 0;
  while (level < levels_.size() && !levels_[level]->has(agents_[level])) ++level;
  return level;
}

// ---- the collectives ----
Result<void> DomainCollectives::barrier_by_leaders() { return fold_and_share({}); }

Result<void> DomainCollectives::allreduce_by_leaders(const calls::Reduction& what) {
  const std::size_t bytes = what.count * size_of(what.type);
  for_segments(what.segments, 0, bytes, [&](const calls::BufferSegment& segment) {
    copy_bytes(what.recv + segment.offset, segment.data, segment.bytes);
  });
  auto done = fold_and_share(what);
  if (!done) return done;
  for_segments(what.segments, 0, bytes, [&](const calls::BufferSegment& segment) {
    copy_bytes(segment.data, what.recv + segment.offset, segment.bytes);
  });
  return done;
}

/// Up to this rank's last level, across if that is the last of all, and down again.
Result<void> DomainCollectives::fold_and_share(const calls::Reduction& what) {
  calls::Reduction part = what;
  part.segments = nullptr;
  part.op = sum_for_average(what.op);
  const bool is_at_top = levels_.size() == places_.size();
  const std::size_t grouped = is_at_top ? levels_.size() - 1 : levels_.size();
  for (std::size_t level = 0; level < grouped; ++level) {
    Group& group = *levels_[level];
    if (auto done = group.reduce(part, group.leader()); !done) return done;
    if (!group.is_alone()) part.send = what.recv;
  }
  if (is_at_top) {
    part.op = what.op;
    if (auto done = levels_.back()->allreduce(part); !done) return done;
  }
  for (std::size_t level = grouped; level-- > 0;) {
    Group& group = *levels_[level];
    if (auto done = group.broadcast(what.recv, what.count * size_of(what.type), group.leader()); !done) return done;
  }
  return {};
}

/// First up to the leaders in all groups that the root has no part in, then down to the root in the others.
Result<void> DomainCollectives::reduce_by_leaders(const calls::Reduction& what, std::uint32_t root) {
  find_agents(root);
  const std::size_t meeting = meeting_level();
  const bool is_root = rounds_.rank() == root;
  calls::Reduction part = what;
  part.op = sum_for_average(what.op);
  part.recv = is_root ? what.recv : partial_.data();
  const auto reduce_to = [&](Group& group, std::uint32_t rank) {
    auto done = group.reduce(part, rank);
    if (rank == rounds_.rank() && !group.is_alone()) part.send = part.recv;
    return done;
  };
  for (std::size_t level = 0; level < meeting; ++level) {
    if (auto done = reduce_to(*levels_[level], levels_[level]->leader()); !done) return done;
  }
  std::size_t last = 0;  // in which the root takes part with others
  while (levels_[last]->is_alone()) ++last;
  for (std::size_t level = levels_.size(); level-- > meeting;) {
    if (is_root && level == last) part.op = what.op;
    if (auto done = reduce_to(*levels_[level], agents_[level]); !done) return done;
  }
  return {};
}

/// The same, the other way round.
Result<void> DomainCollectives::broadcast_by_leaders(std::byte* buffer, std::size_t bytes, std::uint32_t root) {
  find_agents(root);
  const std::size_t meeting = meeting_level();
  for (std::size_t level = meeting; level < levels_.size(); ++level) {
    if (auto done = levels_[level]->broadcast(buffer, bytes, agents_[level]); !done) return done;
  }
  for (std::size_t level = meeting; level-- > 0;) {
    if (auto done = levels_[level]->broadcast(buffer, bytes, levels_[level]->leader()); !done) return done;
  }
  return {};
}

}  // namespace amldist::collective
