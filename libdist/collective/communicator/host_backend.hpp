// The back end for host buffers: shared memory inside a node, messages between nodes, and both in turn where there are
// several ranks on several nodes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collective/algorithms/hierarchical/hierarchical_collectives.hpp"
#include "collective/calls/backend.hpp"
#include "collective/transport/transport_choice.hpp"

namespace amldist::collective {

class HostBackend final : public Backend {
 public:
  /// Collective over the communicator. `gather` is its gather_all; `mpi` may be nullptr; `highest` is the user's limit.
  [[nodiscard]] static Result<std::unique_ptr<HostBackend>> create(ControlChannel& channel, const CommWatch& watch,
                                                                   const Gather& gather, MpiSession* mpi,
                                                                   InstructionSet highest, Watchdog& watchdog);

  [[nodiscard]] std::string_view name() const noexcept override { return name_; }
  /// Before run(): hands this rank's part of the call to the others, where that takes no waiting. It is on its way
  /// while the caller does what else belongs to a call.
  void give(const Call& call);
  [[nodiscard]] Result<void> run(const Call& call, Watchdog& watchdog) override;
  [[nodiscard]] Result<void> run_group(std::span<const Call> messages, Watchdog& watchdog) override;
  [[nodiscard]] Result<void*> allocate(std::size_t bytes) override;
  [[nodiscard]] Result<void> release(void* memory) override;

  [[nodiscard]] const Topology& topology() const noexcept { return topology_; }
  /// Whether calls may come from any thread, or only from the one that the program makes its calls from.
  [[nodiscard]] bool serves_any_thread() const noexcept { return collectives_->serves_any_thread(); }
  /// What carries the messages of users: apart from collectives, which may be in progress meanwhile.
  [[nodiscard]] Transport& messages() noexcept { return *messages_; }
  /// A send or receive, for that transport.
  [[nodiscard]] static Message message_of(const Call& call);
  /// For people: "shared memory (avx512), mpi between 4 nodes".
  [[nodiscard]] std::string describe() const;

 private:
  HostBackend(const CommWatch& watch, Topology topology, TransportChoice choice, InstructionSet highest);
  [[nodiscard]] Result<void> run_collective(const Call& call, Watchdog& watchdog);
  [[nodiscard]] Result<void> share_memory(const Gather& gather);
  [[nodiscard]] std::string memory_offer(std::string& problem);
  [[nodiscard]] std::string open_memory(const std::vector<std::string>& offers);
  void separate_all(std::string why);
  void divide(const Reduction& what) const;
  [[nodiscard]] std::uint32_t chained_signature(const Call& call) noexcept;

  Reductions kernels_;
  const CommWatch& watch_;
  Topology topology_;
  std::string_view name_;
  std::string no_shared_memory_;  ///< why there is no shared memory, if there should be
  std::string why_not_mpi_;
  bool oversubscribed_ = false;  ///< fewer processors than ranks on this machine
  bool messages_share_memory_ = false;
  SharedMemory memory_;
  std::unique_ptr<Transport> collectives_;
  std::unique_ptr<Transport> messages_;
  std::optional<Arenas> arenas_;
  std::optional<SlotChannel> slot_channel_;
  std::optional<NodeCollectives> node_;
  std::uint32_t chain_ = 0;  ///< of the signatures of all calls until now
  std::uint32_t last_signature_ = 0;
  bool is_one_node_ = false;    ///< whose ranks share memory: messages are not needed
  bool given_ = false;          ///< this rank's part of the call that run() is to be called for
  std::vector<Message> sends_;  ///< of one run_group(), as are the receives
  std::vector<Message> receives_;
  std::optional<PeerCollectives> all_;            ///< every rank
  std::optional<HierarchicalCollectives> nodes_;  ///< several nodes, each with its own
};

}  // namespace amldist::collective
