// Collectives among the ranks of one node, over the rounds of a SlotChannel. No call allocates, and no buffer grows
// with the message: longer messages are cut into pieces, and a rank fills the staging buffer with the next piece while
// the others read the last one.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <optional>

#include "calls/blocks.hpp"
#include "calls/call.hpp"
#include "calls/reduction.hpp"
#include "collective/kernels/reductions.hpp"
#include "collective/node/channel/relax.hpp"
#include "collective/node/channel/slot_channel.hpp"
#include "collective/node/memory/arena.hpp"
#include "collective/node/memory/peer_memory.hpp"
#include "collective/tuning/algorithm_choice.hpp"

namespace amldist::collective {

/// The fastest way on this machine, with the processors that the ranks have now.
struct NodeTuning {
  bool fetches = false;  ///< long messages are fetched (single copy) instead of staged
  bool slices = false;   ///< staged all-reduces of two ranks are faster in slices than whole, already from 16 KiB on
  bool trades = false;   ///< two ranks trade their staging memory: SlotChannel::trade_slots()
  /// How data is written to memory that another rank has in its cache and reads next.
  Store for_others = Store::whole_lines;

  friend bool operator==(const NodeTuning&, const NodeTuning&) = default;
};

/// Ranks and roots are those within the node. SlotChannel::begin_call() must come before every call.
class NodeCollectives {
 public:
  using Index = std::uint32_t;  ///< of a rank

  /// `arenas` may be nullptr: then every buffer is private. So may `peers`: then private buffers are staged. All ranks
  /// of the node must pass them, or all nullptr.
  NodeCollectives(SlotChannel& rounds, const Reductions& kernels, const Arenas* arenas, const PeerMemory* peers,
                  std::optional<NodeTuning> given = std::nullopt);

  [[nodiscard]] Result<void> barrier();
  [[nodiscard]] Result<void> allreduce(const calls::Reduction& what);
  /// The first half of an all-reduce: publishes this rank's buffer if that needs no waiting and the others need nothing
  /// else from it; returns whether it did. finish_allreduce() is then the second half, instead of allreduce().
  [[nodiscard]] bool start_allreduce(const calls::Reduction& what);
  [[nodiscard]] Result<void> finish_allreduce(const calls::Reduction& what);
  /// `recv` counts on the root only.
  [[nodiscard]] Result<void> reduce(const calls::Reduction& what, std::uint32_t root);
  /// Rank r's recv becomes the combination of all ranks' block r of send.
  [[nodiscard]] Result<void> reduce_scatter(const calls::Reduction& what, const calls::Blocks& blocks);
  [[nodiscard]] Result<void> broadcast(std::byte* buffer, std::size_t bytes, std::uint32_t root);
  /// `blocks` of recv, in units of `unit` bytes, equal on all ranks; this rank's block is read from send.
  [[nodiscard]] Result<void> allgather(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                       std::size_t unit);
  [[nodiscard]] Result<void> gather(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                    std::size_t unit, std::uint32_t root);
  [[nodiscard]] Result<void> scatter(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                     std::size_t unit, std::uint32_t root);
  /// Block r of send goes to rank r; block r of recv comes from rank r.
  [[nodiscard]] Result<void> alltoall(const std::byte* send, const calls::Blocks& send_blocks, std::byte* recv,
                                      const calls::Blocks& recv_blocks, std::size_t unit);

 private:
  /// Whether buffers are copied to staging buffers, used directly (zero-copy), or fetched from the process that has
  /// them (single copy). Published in a call's first round.
  enum class Mode : std::uint64_t { staged = 0, direct = 1, single_copy = 2 };
  /// Result of a first round: all ranks use private buffers, all work directly, or they differ and start again with
  /// private ones.
  enum class Agreement : std::uint8_t { of_private, direct, mixed };
  class Sliced;
  struct Offer {
    Mode mode;
    std::uint64_t send;  ///< direct: offset in the rank's arena; single copy: address in its process
    std::uint64_t recv;
  };

  [[nodiscard]] Result<std::uint64_t> agree_on_longest(const calls::Blocks& send_blocks,
                                                       const calls::Blocks& recv_blocks);
  void publish(const calls::Reduction& what);
  [[nodiscard]] Result<void> reduce_at_once(const calls::Reduction& what, int root);
  [[nodiscard]] Result<void> allreduce_large(const calls::Reduction& what);
  [[nodiscard]] Result<void> allreduce_direct(const calls::Reduction& what);
  [[nodiscard]] Result<void> allreduce_packed(const calls::Reduction& what);
  void fold_direct(const calls::Reduction& what, const calls::BufferSegment& segment);
  void pack(const calls::Reduction& what, std::size_t begin, std::size_t end) const;
  void unpack(const calls::Reduction& what, std::size_t begin, std::size_t end) const;
  [[nodiscard]] Result<Agreement> allreduce_whole(const calls::Reduction& what, int root);
  [[nodiscard]] Result<Agreement> allreduce_sliced(const calls::Reduction& what, int root);
  [[nodiscard]] Result<void> reduce_private(const calls::Reduction& what, int root);
  // ---- short messages: one round without a slot ----
  /// Publishes what `fill(place)` writes into this rank's place for `bytes`.
  template <typename Fill>
  void publish_short(std::size_t bytes, Fill fill) noexcept {
    fill(slot_channel_.own_place(bytes));
    slot_channel_.publish();
    if (bytes <= SlotChannel::line_data) slot_channel_.prefetch_next_line();
  }
  /// Whether blocks of at most this many bytes for every other rank are short together.
  [[nodiscard]] bool is_short_for_each(std::size_t bytes) const noexcept {
    return bytes <= SlotChannel::short_data && bytes * (slot_channel_.size() - 1) <= SlotChannel::short_data;
  }
  [[nodiscard]] Result<void> await_stream_of_all();
  void fold_shown(const calls::Reduction& what);
  [[nodiscard]] Result<void> broadcast_short(std::byte* buffer, std::size_t bytes, std::uint32_t root);
  [[nodiscard]] Result<void> allgather_short(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                             std::size_t unit);
  [[nodiscard]] Result<void> gather_short(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                          std::size_t unit, std::uint32_t root);
  [[nodiscard]] Result<void> scatter_short(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                           std::size_t unit, std::uint32_t root);
  [[nodiscard]] Result<void> alltoall_short(const std::byte* send, std::byte* recv, std::size_t bytes);
  // ---- reductions ----
  [[nodiscard]] Result<void> reduce_any(const calls::Reduction& what, int root);
  // ---- trials ----
  static constexpr std::size_t most_ways = 6;
  using Times = std::array<std::uint64_t, most_ways>;  ///< of each way; UINT64_MAX: not tried
  static_assert(sizeof(Times) <= SlotChannel::line_data);
  /// The way whose slowest rank is fastest; the present way unless it is slower by more than a twentieth. `own`: this
  /// rank's measurements. The same on all ranks.
  [[nodiscard]] Result<std::size_t> fastest_way(const Times& own, std::size_t present);
  // ---- single copy ----
  /// The two ways for long calls of a collective in a class of sizes, and the result of the last trial.
  struct LongCalls {
    std::uint64_t tried = 0;  ///< calls since the first trial began
    bool fetches = false;
    Times least = {};  ///< picoseconds per byte: staged, fetched
  };
  /// A call of a collective that could be fetched: `work(bool fetches)`. `bytes`: of a rank's larger buffer; equal on
  /// all ranks.
  template <typename Work>
  [[nodiscard]] Result<void> run_faster_variant(tuning::SingleCopy what, std::size_t bytes, Work work);
  [[nodiscard]] bool could_fetch(tuning::SingleCopy what, std::size_t bytes) const noexcept {
    const std::size_t ranks = slot_channel_.size();
    return peers_ != nullptr && ranks <= tuning::most_ranks_single_copy &&
           bytes >= tuning::single_copy_from(what, ranks);
  }
  // ---- staging ----
  /// Before a call of this many bytes, equal on all ranks: tries the ways of staging, if the choice matters, for the
  /// first and every tuning::staging_trial_every-th of those.
  [[nodiscard]] Result<void> tune_staging(std::size_t bytes);
  [[nodiscard]] Result<void> try_stagings();
  void stage_as(const NodeTuning& tuning) noexcept;
  [[nodiscard]] Result<std::uint64_t> time_staging(const calls::Reduction& trial);
  [[nodiscard]] Result<Agreement> allreduce_single_copy(const calls::Reduction& what);
  [[nodiscard]] Result<void> fold_fetched(const calls::Reduction& what);
  [[nodiscard]] Result<void> fetch_results(const calls::Reduction& what);
  [[nodiscard]] Result<void> reduce_scatter_fetched(const calls::Reduction& what, const calls::Blocks& blocks);
  [[nodiscard]] std::byte* fetched_steps() noexcept { return slot_channel_.own_slot() + tuning::single_copy_offsets; }
  [[nodiscard]] Result<void> fold_step(const calls::Reduction& what, std::byte* to, std::size_t own_at, std::size_t at,
                                       std::size_t bytes);
  [[nodiscard]] Result<void> allgather_fetched(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                               std::size_t unit);
  [[nodiscard]] Result<void> broadcast_fetched(std::byte* buffer, std::size_t bytes, std::uint32_t root);
  [[nodiscard]] Result<void> broadcast_staged(std::byte* buffer, std::size_t bytes, std::uint32_t root);
  [[nodiscard]] Result<void> scatter_fetched(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                             std::size_t unit, std::uint32_t root);
  [[nodiscard]] Result<void> reduce_scatter_staged(const calls::Reduction& what, const calls::Blocks& blocks);
  [[nodiscard]] Result<void> allgather_staged(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                              std::size_t unit);
  [[nodiscard]] Result<void> scatter_staged(const std::byte* send, std::byte* recv, const calls::Blocks& blocks,
                                            std::size_t unit, std::uint32_t root);
  [[nodiscard]] Result<void> alltoall_staged(const std::byte* send, const calls::Blocks& send_blocks, std::byte* recv,
                                             const calls::Blocks& recv_blocks, std::size_t unit);
  [[nodiscard]] Result<void> alltoall_fetched(const std::byte* send, std::byte* recv, std::size_t bytes);
  [[nodiscard]] bool is_anyone_in_place();
  /// Begins and publishes a round with the addresses of this rank's buffers, and in its slot the offset of each rank's
  /// block in `send`, if ranks may have different ones.
  [[nodiscard]] Result<void> show(const void* send, const void* recv, const calls::Blocks* blocks = nullptr);
  /// Waits until all ranks have fetched what they need from this one; or only `owner` waits.
  [[nodiscard]] Result<void> finish_reading();
  [[nodiscard]] Result<void> finish_reading(std::uint32_t owner);
  /// Copies from a rank's process. A bad address of this rank ends its process, one of the other rank's the
  /// call.
  [[nodiscard]] Result<void> fetch(std::uint32_t rank, std::byte* to, std::uint64_t from, std::size_t bytes);

  [[nodiscard]] bool folds_whole(std::size_t bytes) const noexcept;
  [[nodiscard]] std::size_t longest_piece() const noexcept;
  void offer(const Offer& own);
  [[nodiscard]] Offer offer_of(std::uint32_t rank, std::uint32_t back);
  [[nodiscard]] Agreement agreement(std::uint32_t back);
  [[nodiscard]] Store store_for(std::size_t bytes) const noexcept;
  void copy(void* to, const void* from, std::size_t bytes, Store store = Store::cached) const {
    if (bytes != 0 && to != from) kernels_.copy(to, from, bytes, store);
  }
  /// Copies the part of a block of `bytes` that belongs to piece `i`; an empty block may be null.
  void copy_piece(std::byte* to, const std::byte* from, std::size_t bytes, std::size_t i, std::size_t piece,
                  Store store) const;
  /// Copies to the own staging buffer or other memory that another rank has in its cache.
  void copy_for_others(void* to, const void* from, std::size_t bytes) const {
    if (tuned_.for_others != Store::streaming) prefetch_for_copy(static_cast<std::byte*>(to), bytes);
    copy(to, from, bytes, tuned_.for_others);
  }
  /// A slot has a part for each other rank: the bytes of one, a multiple of a cache line, for blocks of at most
  /// `longest` bytes; `buffers` as in SlotChannel::use_slots(). All ranks must give the same.
  [[nodiscard]] std::size_t use_slots_by_rank(std::size_t longest, std::size_t buffers,
                                              SlotChannel::Flow flow = SlotChannel::Flow::both_ways) noexcept;
  /// The part of a rank's slot that is for `reader`.
  [[nodiscard]] std::size_t part_for(std::uint32_t reader, std::uint32_t writer) const noexcept {
    return (reader > writer ? reader : reader + slot_channel_.size()) - writer - 1;
  }
  /// Bytes of a piece of a pipeline in which data goes one way only, from or to the root.
  [[nodiscard]] std::size_t one_way_piece(std::size_t bytes) const noexcept {
    return std::min(slot_channel_.slot_bytes(), tuning::one_way_piece(bytes, slot_channel_.is_oversubscribed()));
  }
  /// One pipeline: `stage(i)` fills the own slot or line, `consume(i, back)` reads the other ranks' round. It may end
  /// the pipeline by returning false (a Result<bool>).
  template <typename Stage, typename Consume>
  [[nodiscard]] Result<void> pipeline(std::size_t pieces, Stage stage, Consume consume);

  SlotChannel& slot_channel_;
  const Reductions& kernels_;
  const Arenas* arenas_;
  const PeerMemory* peers_;
  std::size_t streaming_from_;        ///< results of this many bytes and more use streaming stores
  std::vector<const void*> sources_;  ///< of a fold, by rank
  std::vector<const std::byte*> inputs_;
  std::vector<std::byte*> results_;
  const bool is_given_;
  NodeTuning tuned_;
  bool fetches_ = false;  ///< for the present all-reduce
  std::array<std::array<LongCalls, tuning::single_copy_classes>, tuning::single_copy_collectives> long_calls_;
  std::uint64_t untried_ = 0;       ///< long calls of any collective before the first trial
  std::uint64_t staged_calls_ = 0;  ///< calls for which the way of staging matters
  std::vector<Offer> offers_;       ///< of a single copy, by rank
  Offer offer_ = {};
};

}  // namespace amldist::collective
