#include <algorithm>
#include <array>
#include <bit>

#include "collective/algorithms/peer_collectives.hpp"
#include "collective/kernels/copy_bytes.hpp"

namespace amldist::collective {
namespace {

// A step takes about as long as sending so many bytes more (measured by tests/bench/between_nodes).
constexpr std::size_t bytes_of_a_step = 8192;
// Bytes to all of the others: where their number is no power of two, other ways take several steps more.
constexpr std::size_t directly_up_to = 32768;
constexpr std::size_t ranks_directly = 8;  // at most
// Of what goes round, and so the scratch memory.
constexpr std::size_t longest_piece = 1UL << 20;
// More does not stay in the cache between a step and the next.
constexpr std::size_t halved_at_once = 512UL << 10;

std::size_t whole_logarithm(std::size_t ranks) noexcept { return static_cast<std::size_t>(std::bit_width(ranks)) - 1; }

/// Whether few steps with all the data take less than more steps with slices of it.
bool doubles(std::size_t bytes, std::size_t ranks) noexcept {
  const bool is_power = std::has_single_bit(ranks);
  const std::size_t steps = whole_logarithm(ranks) + (is_power ? 0 : 2);
  const std::size_t sliced_steps = is_power ? 2 * steps : 2 * (ranks - 1);
  const std::size_t sliced_bytes = 2 * bytes / ranks * (ranks - 1);
  return bytes <= longest_piece && steps * (bytes_of_a_step + bytes) <= sliced_steps * bytes_of_a_step + sliced_bytes;
}

ReduceOp without_division(ReduceOp op) noexcept { return op == ReduceOp::avg ? ReduceOp::sum : op; }

}  // namespace

void PeerCollectives::combine(std::byte* into, const std::byte* mine, const std::byte* other, std::size_t count,
                              const Reduction& what, bool other_first) const {
  if (count == 0) return;
  const void* const sources[2] = {other_first ? other : mine, other_first ? mine : other};
  kernels_.fold({into, nullptr, sources, 2, count, 1, Store::cached}, what.type, without_division(what.op));
}

Result<void> PeerCollectives::swap_and_combine(std::size_t to, const std::byte* out, std::size_t out_count,
                                               std::size_t from, const std::byte* mine, std::byte* into,
                                               std::size_t in_count, const Reduction& what, bool other_first) {
  const std::size_t unit = size_of(what.type);
  std::byte* const other = scratch(in_count * unit);
  sends_.clear();
  receives_.clear();
  add_parts(sends_, to, out, out_count * unit);
  add_parts(receives_, from, other, in_count * unit, true);
  return transport_.exchange(sends_, receives_, *watchdog_, [&](std::size_t part) {
    const std::size_t at = part * transport_.part_bytes();
    combine(into + at, mine + at, other + at, receives_[part].bytes / unit, what, other_first);
  });
}

// ---- allreduce ----
/// Few messages of everything where messages are short; else slices, in few steps where the ranks can be halved.
Result<void> PeerCollectives::allreduce(const Reduction& what) {
  const std::size_t unit = size_of(what.type);
  const std::size_t bytes = what.count * unit;
  const std::size_t size = group_.size();
  if (size == 1) {
    copy_bytes(what.recv, what.send, bytes);
    return {};
  }
  const bool halves = std::has_single_bit(size);
  if (!halves && size <= ranks_directly && bytes * (size - 1) <= directly_up_to) return allreduce_directly(what);
  if (doubles(bytes, size)) return allreduce_by_doubling(what);
  const std::size_t most = halves ? halved_at_once / unit : longest_piece / unit * size;
  for (std::size_t at = 0; at < what.count; at += most) {
    Reduction part = what;
    part.count = std::min(most, what.count - at);
    part.send += at * unit;
    part.recv += at * unit;
    if (auto done = halves ? allreduce_by_halving(part) : allreduce_by_ring(part); !done) return done;
  }
  return {};
}

/// Everybody's data to everybody, in one step; folded in rank order.
Result<void> PeerCollectives::allreduce_directly(const Reduction& what) {
  const std::size_t bytes = what.count * size_of(what.type);
  const std::size_t size = group_.size();
  std::array<Message, ranks_directly> sends;
  std::array<Message, ranks_directly> receives;
  std::array<const void*, ranks_directly> sources = {};
  std::byte* const parts = scratch(bytes * size);
  sources[group_.own] = what.send;
  for (std::size_t k = 1; k < size; ++k) {  // each begins with another rank, so that nobody is everybody's first
    const std::size_t peer = (group_.own + k) % size;
    sources[peer] = parts + peer * bytes;
    sends[k - 1] = message(peer, what.send, bytes);
    receives[k - 1] = message(peer, parts + peer * bytes, bytes);
  }
  auto done = transport_.exchange(std::span(sends).first(size - 1), std::span(receives).first(size - 1), *watchdog_);
  if (!done || what.count == 0) return done;
  kernels_.fold({what.recv, nullptr, sources.data(), size, what.count, 1, Store::cached}, what.type,
                without_division(what.op));
  return {};
}

/// Recursive doubling. Ranks beyond the largest power of two give their data to a partner first and get the result
/// back.
Result<void> PeerCollectives::allreduce_by_doubling(const Reduction& what) {
  const std::size_t bytes = what.count * size_of(what.type);
  const std::size_t core = std::bit_floor(group_.size());
  const std::size_t own = group_.own;
  if (own >= core) {
    if (auto sent = send(own - core, what.send, bytes); !sent) return sent;
    return receive(own - core, what.recv, bytes);
  }
  std::byte* const other = scratch(bytes);
  const std::byte* mine = what.send;
  const bool has_guest = own + core < group_.size();
  if (has_guest) {
    if (auto got = receive(own + core, other, bytes); !got) return got;
    combine(what.recv, mine, other, what.count, what, false);
    mine = what.recv;
  }
  for (std::size_t distance = 1; distance < core; distance *= 2) {
    const std::size_t partner = own ^ distance;
    const Message sent = message(partner, mine, bytes);
    Message received = message(partner, other, bytes);
    received.has_room = true;
    if (auto done = transport_.exchange({&sent, 1}, {&received, 1}, *watchdog_); !done) return done;
    combine(what.recv, mine, other, what.count, what, partner < own);
    mine = what.recv;
  }
  return has_guest ? send(own + core, mine, bytes) : Result<void>();
}

/// Rabenseifner's way for a power of two of ranks: partners at half the distance each time share what they have left to
/// do, until every rank has one finished slice; then they give each other what they have, back the same way.
Result<void> PeerCollectives::allreduce_by_halving(const Reduction& what) {
  const std::size_t unit = size_of(what.type);
  const std::size_t own = group_.own;
  struct Range {
    std::size_t begin, end;
    [[nodiscard]] std::size_t count() const { return end - begin; }
  };
  std::array<Range, 64> given = {};  // of each step
  Range kept = {0, what.count};
  const std::byte* mine = what.send;
  std::size_t step = 0;
  for (std::size_t distance = group_.size() / 2; distance != 0; distance /= 2, ++step) {
    const std::size_t partner = own ^ distance;
    const std::size_t middle = kept.begin + (kept.count() + 1) / 2;
    given[step] = (own & distance) != 0 ? Range{kept.begin, middle} : Range{middle, kept.end};
    kept = (own & distance) != 0 ? Range{middle, kept.end} : Range{kept.begin, middle};
    auto done =
        swap_and_combine(partner, mine + given[step].begin * unit, given[step].count(), partner,
                         mine + kept.begin * unit, what.recv + kept.begin * unit, kept.count(), what, partner < own);
    if (!done) return done;
    mine = what.recv;
  }
  for (std::size_t distance = 1; distance < group_.size(); distance *= 2) {
    const std::size_t partner = own ^ distance;
    const Range& got = given[--step];
    auto done = swap(partner, what.recv + kept.begin * unit, kept.count() * unit, partner, what.recv + got.begin * unit,
                     got.count() * unit);
    if (!done) return done;
    kept = {std::min(kept.begin, got.begin), std::max(kept.end, got.end)};
  }
  return {};
}

/// Slices go round: every rank adds its own to what comes, then the finished slices go round.
Result<void> PeerCollectives::allreduce_by_ring(const Reduction& what) {
  const std::size_t unit = size_of(what.type);
  const std::size_t size = group_.size();
  const std::size_t next = (group_.own + 1) % size;
  const std::size_t previous = (group_.own + size - 1) % size;
  const std::size_t each = (what.count + size - 1) / size;
  const auto begin = [&](std::size_t slice) { return std::min(what.count, slice * each); };
  const auto count = [&](std::size_t slice) { return begin(slice + 1) - begin(slice); };
  for (std::size_t step = 0; step + 1 < size; ++step) {
    const std::size_t out = (group_.own + size - step) % size;
    const std::size_t in = (out + size - 1) % size;
    const std::byte* const given = (step == 0 ? what.send : what.recv) + begin(out) * unit;
    auto done = swap_and_combine(next, given, count(out), previous, what.send + begin(in) * unit,
                                 what.recv + begin(in) * unit, count(in), what, true);
    if (!done) return done;
  }
  for (std::size_t step = 0; step + 1 < size; ++step) {
    const std::size_t out = (group_.own + 1 + size - step) % size;
    const std::size_t in = (out + size - 1) % size;
    auto done = swap(next, what.recv + begin(out) * unit, count(out) * unit, previous, what.recv + begin(in) * unit,
                     count(in) * unit);
    if (!done) return done;
  }
  return {};
}

// ---- other reductions ----
/// A binomial tree, in pieces.
Result<void> PeerCollectives::reduce(const Reduction& what, std::size_t root) {
  const std::size_t unit = size_of(what.type);
  const std::size_t size = group_.size();
  const std::size_t own = (group_.own + size - root) % size;
  const std::size_t most = longest_piece / unit;
  for (std::size_t at = 0; at < what.count; at += most) {
    const std::size_t count = std::min(most, what.count - at);
    const std::size_t bytes = count * unit;
    std::byte* const other = scratch(2 * bytes);
    std::byte* const data = own == 0 ? what.recv + at * unit : other + bytes;
    const std::byte* mine = what.send + at * unit;
    for (std::size_t distance = 1; distance < size; distance *= 2) {
      if ((own & distance) != 0) {
        if (auto sent = send((own - distance + root) % size, mine, bytes); !sent) return sent;
        break;
      }
      if (own + distance >= size) continue;
      if (auto got = receive((own + distance + root) % size, other, bytes); !got) return got;
      combine(data, mine, other, count, what, false);
      mine = data;
    }
    if (own == 0 && mine != data) copy_bytes(data, mine, bytes);
  }
  return {};
}

/// Every rank gets all others' parts of its block, piece by piece, and folds them in rank order.
Result<void> PeerCollectives::reduce_scatter(const Reduction& what, const Blocks& blocks) {
  const std::size_t unit = size_of(what.type);
  const std::size_t size = group_.size();
  std::size_t longest = 0;
  for (std::size_t r = 0; r < size; ++r) longest = std::max(longest, blocks.count(r));
  const std::size_t piece = std::max<std::size_t>(1, longest_piece / unit / size);
  std::byte* const parts = scratch(piece * unit * size);
  std::vector<const void*> sources(size);
  for (std::size_t at = 0; at < std::max<std::size_t>(longest, 1); at += piece) {
    const auto part = [&](std::size_t r) { return std::min(piece, blocks.count(r) - std::min(blocks.count(r), at)); };
    std::vector<Message> sends;
    std::vector<Message> receives;
    for (std::size_t r = 0; r < size; ++r) {
      const std::byte* const mine = what.send + (blocks.offset(r) + at) * unit;
      sources[r] = r == group_.own ? mine : parts + r * piece * unit;
      if (r == group_.own) continue;
      sends.push_back(message(r, mine, part(r) * unit));
      receives.push_back(message(r, parts + r * piece * unit, part(group_.own) * unit));
    }
    if (auto done = transport_.exchange(sends, receives, *watchdog_); !done) return done;
    if (part(group_.own) == 0) continue;
    kernels_.fold({what.recv + at * unit, nullptr, sources.data(), size, part(group_.own), 1, Store::cached}, what.type,
                  without_division(what.op));
  }
  return {};
}

}  // namespace amldist::collective
