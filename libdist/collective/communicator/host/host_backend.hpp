// The back end for host buffers: shared memory inside a node, messages between nodes, and both in turn if there are
// several ranks on several nodes.
//
// Rules for it, and for whatever it calls:
//  - A call never waits without asking the watchdog now and then (every millisecond or so). When that says stop, the
//    call returns the error at once, and leaves its buffers as they are. The back end is not used again after an error.
//  - A wait says which ranks it waits for as exactly as it can: that is how a missing rank gets its name.
//  - Nothing is printed, and nothing is thrown but std::bad_alloc.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "calls/call.hpp"
#include "collective/algorithms/hierarchical/hierarchical_collectives.hpp"
#include "collective/settings.hpp"
#include "collective/transport/transport_choice.hpp"

namespace amldist::collective {

/// Used by one thread at a time, which starts and finishes calls in the order in which all ranks make them. messages()
/// may be used by another thread meanwhile.
class HostBackend {
 public:
  /// Collective over the communicator. `gather` is its gather_all; `mpi` may be nullptr.
  [[nodiscard]] static Result<std::unique_ptr<HostBackend>> create(world::ControlChannel& channel,
                                                                   const world::CommWatch& watch, const Gather& gather,
                                                                   world::MpiSession* mpi, const Settings& settings,
                                                                   calls::Watchdog& watchdog);

  ~HostBackend() = default;
  HostBackend(const HostBackend&) = delete;
  HostBackend& operator=(const HostBackend&) = delete;

  /// A call between its two halves. The call outlives it.
  class [[nodiscard]] StartedCall {
   public:
    /// Runs the call to its end; once, and before the next call starts.
    [[nodiscard]] Result<void> finish(calls::Watchdog& watchdog) const { return backend_.finish(*this, watchdog); }

   private:
    friend class HostBackend;
    StartedCall(HostBackend& backend, const calls::Call& call) : backend_(backend), call_(call) {}
    HostBackend& backend_;
    const calls::Call& call_;
    std::uint32_t signature_ = 0;  ///< of a collective
    bool is_published_ = false;    ///< other ranks have this rank's part; only the result is missing
  };
  /// Publishes this rank's part of the call if that needs no waiting: it is on its way while the caller does the rest
  /// of the work. The arguments were checked.
  [[nodiscard]] StartedCall start(const calls::Call& call);
  /// Whether copying takes so little of the call's time that vain_looks() shows, at its end, when it began and ended.
  [[nodiscard]] bool is_brief(const calls::Call& call) const noexcept {
    constexpr std::size_t most = 16UL << 10;  // bytes that are copied in a microsecond or so
    const bool is_one_call = !is_point_to_point(call.operation) && call.operation != calls::Operation::finalize;
    return is_one_node_ && is_one_call && call.lists == nullptr &&
           call.count * size_of(call.type) * watch_.members().size() <= most;
  }
  [[nodiscard]] const VainLooks& vain_looks() const noexcept { return slot_channel_->vain_looks(); }
  /// Runs sends and receives that may cross as one call.
  [[nodiscard]] Result<void> exchange(std::span<const calls::Call> messages, calls::Watchdog& watchdog);

  /// Memory that calls use without a copy, zeroed and page-aligned.
  [[nodiscard]] Result<void*> allocate(std::size_t bytes);
  /// Frees memory of allocate().
  [[nodiscard]] Result<void> release(void* memory);
  /// Makes the program's memory usable without a copy, until deregister_memory() or the end. Does nothing if this rank
  /// shares memory with no other rank.
  [[nodiscard]] Result<void> register_memory(void* memory, std::size_t bytes);
  [[nodiscard]] Result<void> deregister_memory(void* memory);

  /// Whether calls may come from any thread, or only from the program's.
  [[nodiscard]] bool serves_any_thread() const noexcept { return collectives_->serves_any_thread(); }
  /// The transport of users' messages, separate from that of collectives, which may be in progress meanwhile.
  [[nodiscard]] Transport& messages() noexcept { return *messages_; }
  /// A send or receive as that transport's message.
  [[nodiscard]] static Message message_of(const calls::Call& call) noexcept {
    // A message only reads the data that it sends.
    void* const data = call.operation == calls::Operation::send ? const_cast<void*>(call.send) : call.recv;  // NOLINT
    return {call.root,
            static_cast<std::byte*>(data),
            call.count * size_of(call.type),
            calls::signature_of_message(call.type, call.count),
            false,
            call.tag,
            call.source};
  }
  /// For people: "shared memory (avx512, single copy), mpi between 4 nodes".
  [[nodiscard]] std::string describe() const;
  /// Why ranks of one node do not share memory, as a sentence; empty if they do.
  [[nodiscard]] const std::string& fall_back() const noexcept { return no_shared_memory_; }

 private:
  HostBackend(const world::CommWatch& watch, Topology topology, TransportChoice choice, InstructionSet highest);
  [[nodiscard]] Result<void> finish(const StartedCall& started, calls::Watchdog& watchdog);
  [[nodiscard]] Result<void> run_collective(const calls::Call& call, std::uint32_t signature,
                                            calls::Watchdog& watchdog);
  [[nodiscard]] Result<void> run_on_nodes(const calls::Call& call, std::uint32_t signature, calls::Watchdog& watchdog);
  [[nodiscard]] Result<void> share_memory(const Gather& gather, const std::string& host, SingleCopyPolicy policy);
  void make_node(const std::string& host, std::optional<NodeTuning> given);
  [[nodiscard]] std::string memory_offer(std::string& problem, const PeerMemory::Sample& sample);
  [[nodiscard]] std::string open_memory(const calls::Pieces& offers);
  void open_peers(const calls::Pieces& offers);
  void match_tags(world::ControlChannel& channel);
  void treat_each_rank_as_node(const std::string& why);
  void divide(const calls::Reduction& what) const;
  [[nodiscard]] std::uint32_t chained_signature(const calls::Call& call) noexcept;

  Reductions kernels_;
  const world::CommWatch& watch_;
  Topology topology_;
  std::string no_shared_memory_;  ///< why there is no shared memory although there should be
  std::size_t machines_ = 1;      ///< nodes, if there is no shared memory
  std::string why_not_mpi_;
  bool oversubscribed_ = false;  ///< fewer processors than ranks on this machine
  bool messages_share_memory_ = false;
  SharedMemory memory_;
  std::unique_ptr<Transport> collectives_;
  std::unique_ptr<Transport> messages_;
  std::optional<Arenas> arenas_;
  std::optional<PeerMemory> peers_;  ///< private memory of the node's other ranks, if all may read it
  std::optional<SlotChannel> slot_channel_;
  std::optional<NodeCollectives> node_;
  std::uint32_t chain_ = 0;     ///< of the signatures of all calls until now
  bool is_one_node_ = false;    ///< and its ranks share memory: no messages are needed
  std::vector<Message> sends_;  ///< of one exchange(), like the receives
  std::vector<Message> receives_;
  std::optional<PeerCollectives> all_;            ///< every rank
  std::optional<HierarchicalCollectives> nodes_;  ///< several nodes, each with its own
};

}  // namespace amldist::collective
