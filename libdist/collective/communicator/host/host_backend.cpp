#include "collective/communicator/host/host_backend.hpp"

#include <algorithm>
#include <utility>

#include "base/text/text.hpp"
#include "collective/kernels/copy_bytes.hpp"
#include "collective/transport/loopback_transport.hpp"
#include "collective/transport/matching_transport.hpp"
#include "collective/transport/node_transport.hpp"
#include "collective/transport/tcp_transport.hpp"
#include "collective/tuning/algorithm_choice.hpp"
#include "world/wireup/join_request.hpp"

namespace amldist::collective {
namespace {

using text::concat;

const std::byte* bytes_of(const void* data) { return static_cast<const std::byte*>(data); }
std::byte* bytes_of(void* data) { return static_cast<std::byte*>(data); }

/// Signature of one collective, including its number, so that a rank that is one call behind is noticed.
std::uint32_t numbered_signature(const calls::Call& call) {
  return signature_of(call) ^ digest_of_lists(call) ^ (static_cast<std::uint32_t>(call.sequence) * 0x9e3779b9U);
}

calls::Reduction reduction_of(const calls::Call& call, std::size_t ranks) {
  return {bytes_of(call.send), bytes_of(call.recv), call.count, call.type, call.redop, ranks, call.segments};
}

calls::Blocks blocks_of(const calls::Call& call) {
  return call.lists == nullptr ? calls::Blocks(call.count)
                               : calls::Blocks(call.lists->recv_counts, call.lists->recv_offsets);
}

/// Shared memory of a node's ranks: for collectives, then for messages, then for messages with tags.
std::size_t memory_bytes(std::uint32_t ranks) {
  return SlotChannel::memory_bytes(ranks, tuning::node_slot) + 2 * NodeTransport::memory_bytes(ranks);
}

std::vector<std::uint32_t> nodes_of(const world::ControlChannel& channel, const world::CommWatch& watch) {
  std::vector<std::uint32_t> nodes;
  for (const std::uint32_t member : watch.members()) nodes.push_back(channel.table().node_of(member));
  return nodes;
}

/// Runs the call on ranks of one node, by messages alone, or on several nodes. `index_of_root` is an index among them.
template <typename Group>
Result<void> run_on(Group& group, const calls::Call& call, const calls::Reduction& what, std::size_t index_of_root) {
  const std::size_t unit = size_of(call.type);
  const auto root = static_cast<typename Group::Index>(index_of_root);
  switch (call.operation) {
    case calls::Operation::allreduce:
      return group.allreduce(what);
    case calls::Operation::reduce:
      return group.reduce(what, root);
    case calls::Operation::reduce_scatter:
      return group.reduce_scatter(what, calls::Blocks(call.count));
    case calls::Operation::reduce_scatterv:
      return group.reduce_scatter(what, calls::Blocks(call.lists->send_counts, call.lists->send_offsets));
    case calls::Operation::broadcast:
      return group.broadcast(what.recv, call.count * unit, root);
    case calls::Operation::allgather:
    case calls::Operation::allgatherv:
      return group.allgather(what.send, what.recv, blocks_of(call), unit);
    case calls::Operation::gather:
      return group.gather(what.send, what.recv, calls::Blocks(call.count), unit, root);
    case calls::Operation::scatter:
      return group.scatter(what.send, what.recv, calls::Blocks(call.count), unit, root);
    case calls::Operation::alltoall:
      return group.alltoall(what.send, calls::Blocks(call.count), what.recv, calls::Blocks(call.count), unit);
    case calls::Operation::alltoallv:
      return group.alltoall(what.send, calls::Blocks(call.lists->send_counts, call.lists->send_offsets), what.recv,
                            calls::Blocks(call.lists->recv_counts, call.lists->recv_offsets), unit);
    default:
      return group.barrier();
  }
}

/// Whether this rank gets a result of a reduction in `recv`.
bool has_result(const calls::Call& call, std::uint32_t rank) {
  return is_reduction(call.operation) &&
         (call.operation != calls::Operation::reduce || call.root == static_cast<int>(rank));
}

}  // namespace

// ---- building ----
HostBackend::HostBackend(const world::CommWatch& watch, Topology topology, TransportChoice choice,
                         InstructionSet highest)
    : kernels_(best_instruction_set(highest)),
      watch_(watch),
      topology_(std::move(topology)),
      why_not_mpi_(std::move(choice.why_not_mpi)),
      oversubscribed_(choice.is_oversubscribed),
      messages_share_memory_(choice.shares_memory),
      collectives_(std::move(choice.collectives)),
      messages_(std::move(choice.messages)) {}

Result<std::unique_ptr<HostBackend>> HostBackend::create(world::ControlChannel& channel, const world::CommWatch& watch,
                                                         const Gather& gather, world::MpiSession* mpi,
                                                         const Settings& settings, calls::Watchdog& watchdog) {
  auto choice = choose_transport(channel, watch, gather, mpi, watchdog);
  if (!choice) return choice.error();
  const int rank = static_cast<int>(watch.rank());
  std::unique_ptr<HostBackend> out(new HostBackend(watch, Topology::of(nodes_of(channel, watch), rank),
                                                   std::move(*choice), settings.instruction_set));
  if (out->topology_.most_on_a_node() > 1) {
    const std::string& host = channel.host_of(watch.members()[watch.rank()]);
    if (auto status = out->share_memory(gather, host, settings.single_copy); !status) return status.error();
  }
  PeerGroup all;
  for (int r = 0; r < static_cast<int>(watch.members().size()); ++r) all.ranks.push_back(r);
  all.own = watch.rank();
  out->match_tags(channel);
  out->all_.emplace(*out->collectives_, std::move(all), out->kernels_);
  NodeCollectives* const node = out->node_ ? &*out->node_ : nullptr;
  out->nodes_.emplace(out->topology_, *out->collectives_, out->kernels_, *out->all_, node);
  return out;
}

/// What a rank tells the others of its node: the addresses of its memory.
std::string HostBackend::memory_offer(std::string& problem, const PeerMemory::Sample& sample) {
  const auto size = static_cast<std::uint32_t>(topology_.own_ranks().size());
  const auto fail = [&](const Error& why) {
    problem =
        concat({"shared memory of rank ", std::to_string(watch_.rank()), " is not available (", why.message, ")"});
  };
  if (topology_.own_index == 0 && size > 1) {
    auto made = SharedMemory::create(memory_bytes(size));
    if (made) memory_ = std::move(*made);
    else fail(made.error());
  }
  if (auto made = Arenas::create(topology_.own_index, size)) arenas_ = std::move(*made);
  else fail(made.error());
  return concat({memory_.data() != nullptr ? memory_.address() : "", "\n", arenas_ ? arenas_->address() : "", "\n",
                 sample.address()});
}

/// Opens the memory that the other ranks of the node offer; returns a sentence if that fails. `offers` by rank of the
/// communicator.
std::string HostBackend::open_memory(const calls::Pieces& offers) {
  const auto& ranks = topology_.own_ranks();
  const auto fail = [&](std::size_t index, const Error& why) {
    const auto [low, high] = std::minmax({static_cast<int>(watch_.rank()), ranks[index]});  // by value
    return concat({"shared memory between rank ", std::to_string(low), " and rank ", std::to_string(high),
                   " is not available (", why.message, ")"});
  };
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i == topology_.own_index) continue;
    const auto offer = text::split(offers[static_cast<std::size_t>(ranks[i])], '\n');
    const bool is_whole = offer.size() == 3 && !offer[1].empty() && (i != 0 || !offer[0].empty());
    if (!is_whole) return {};  // that rank says why it offers no memory
    if (i == 0) {
      auto opened = SharedMemory::open(std::string(offer[0]), memory_bytes(static_cast<std::uint32_t>(ranks.size())));
      if (!opened) return fail(i, opened.error());
      memory_ = std::move(*opened);
    }
    if (auto status = arenas_->open(i, std::string(offer[1])); !status) return fail(i, status.error());
  }
  return {};
}

/// Whether this process may read the private memory of the node's other ranks; if not, `peers_` is empty.
void HostBackend::open_peers(const calls::Pieces& offers) {
  const auto& ranks = topology_.own_ranks();
  peers_.emplace(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i == topology_.own_index) continue;
    const std::string& offer = offers[static_cast<std::size_t>(ranks[i])];
    if (!peers_->open(i, text::split(offer, '\n').back())) return peers_.reset();
  }
}

/// The first rank of each node makes the memory, the others open it; then all learn whether all could, and whether all
/// may read the others' private memory.
Result<void> HostBackend::share_memory(const Gather& gather, const std::string& host, SingleCopyPolicy policy) {
  constexpr char reads_no_peers = '-';  // one of the three precedes a problem
  constexpr char reads_peers = '+';
  constexpr char reads_always = '!';
  const auto size = static_cast<std::uint32_t>(topology_.own_ranks().size());
  const PeerMemory::Sample sample(world::random_number());
  std::string problem;
  const auto offers = gather(memory_offer(problem, sample), calls::GatherScope::node);
  if (!offers) return offers.error();
  if (problem.empty()) problem = open_memory(*offers);
  if (policy != SingleCopyPolicy::off) open_peers(*offers);
  const char reads = !peers_ ? reads_no_peers : policy == SingleCopyPolicy::always ? reads_always : reads_peers;
  const auto problems = gather(reads + problem, calls::GatherScope::all_ranks);
  if (!problems) return problems.error();
  memory_.close_file();
  std::optional<NodeTuning> given;  // if not configured, the ranks measure what is fastest
  for (const calls::Pieces::Run& each : problems->runs()) {
    const char theirs = each.piece.empty() ? reads_no_peers : each.piece.front();
    if (theirs == reads_no_peers) peers_.reset();
    if (theirs == reads_always) given = NodeTuning{.fetches = true};
    if (each.piece.size() > 1) {
      treat_each_rank_as_node(each.piece.substr(1));
      return {};
    }
  }
  if (size > 1) make_node(host, given);
  return {};
}

/// In memory that all ranks of the node have opened.
void HostBackend::make_node(const std::string& host, std::optional<NodeTuning> given) {
  const auto& ranks = topology_.own_ranks();
  const auto size = static_cast<std::uint32_t>(ranks.size());
  NodeGroup place = {static_cast<std::uint32_t>(topology_.own_index), size, ranks, host};
  slot_channel_.emplace(memory_.data(), std::move(place), tuning::node_slot, oversubscribed_);
  node_.emplace(*slot_channel_, kernels_, &*arenas_, peers_ ? &*peers_ : nullptr, given);
  is_one_node_ = topology_.nodes.size() == 1;
  if (messages_share_memory_) return;
  std::byte* const rings = memory_.data() + SlotChannel::memory_bytes(size, tuning::node_slot);
  messages_ = std::make_unique<NodeTransport>(std::move(messages_), rings, slot_channel_->place(), oversubscribed_,
                                              peers_ ? &*peers_ : nullptr);
}

/// Messages with tags have their own transport, whatever carries the others. The communicator's identifier is random:
/// this derives another one.
void HostBackend::match_tags(world::ControlChannel& channel) {
  constexpr std::uint64_t of_tagged = 0x7461676765640000;
  auto make = [this, &channel]() -> std::unique_ptr<Transport> {
    auto others = std::make_unique<TcpTransport>(channel, watch_, watch_.id() ^ of_tagged, oversubscribed_);
    std::unique_ptr<Transport> out =
        std::make_unique<LoopbackTransport>(std::move(others), static_cast<int>(watch_.rank()));
    if (!slot_channel_) return out;
    const std::uint32_t size = slot_channel_->size();
    std::byte* const rings =
        memory_.data() + SlotChannel::memory_bytes(size, tuning::node_slot) + NodeTransport::memory_bytes(size);
    return std::make_unique<NodeTransport>(std::move(out), rings, slot_channel_->place(), oversubscribed_,
                                           peers_ ? &*peers_ : nullptr);
  };
  auto forget = [this, &channel] { channel.forget_data_connections(watch_.id() ^ of_tagged); };
  messages_ = std::make_unique<MatchingTransport>(std::move(messages_), watch_.members().size(), std::move(make),
                                                  std::move(forget));
}

/// If shared memory is missing on any node, every rank counts as a node of its own.
void HostBackend::treat_each_rank_as_node(const std::string& why) {
  no_shared_memory_ = concat({why, ", ", collectives_->name(), " is used"});
  machines_ = topology_.nodes.size();
  memory_ = SharedMemory();
  arenas_.reset();
  peers_.reset();
  const int size = static_cast<int>(watch_.members().size());
  topology_ = Topology();
  for (int r = 0; r < size; ++r) topology_.nodes.push_back({r});
  topology_.own_node = watch_.rank();
}

std::string HostBackend::describe() const {
  std::string text;
  if (node_) text = concat({"shared memory (", to_string(kernels_.instruction_set()), peers_ ? ", single copy)" : ")"});
  if (!no_shared_memory_.empty()) {
    text = concat({collectives_->name(), " between ranks", machines_ > 1 ? " and nodes" : " of one node"});
  } else if (topology_.nodes.size() > 1) {
    text += concat({text.empty() ? "" : ", ", collectives_->name(), " between ", std::to_string(topology_.nodes.size()),
                    " nodes"});
  }
  if (!why_not_mpi_.empty()) text += concat({" (no MPI: ", why_not_mpi_, ")"});
  if (!no_shared_memory_.empty()) text += concat({" (", no_shared_memory_, ")"});
  return text.empty() ? "one process" : text;
}

// ---- running ----
/// The chain contains the calls before it as well. Some calls end on a rank without hearing from others, as a gather
/// does on all but the root: a rank that made another call there is noticed in the next call that waits for it.
std::uint32_t HostBackend::chained_signature(const calls::Call& call) noexcept {
  return chain_ ^= numbered_signature(call);
}

HostBackend::StartedCall HostBackend::start(const calls::Call& call) {
  StartedCall started(*this, call);
  if (is_point_to_point(call.operation)) return started;
  started.signature_ = chained_signature(call);
  if (slot_channel_) slot_channel_->begin_call(started.signature_);
  if (is_one_node_ && call.operation == calls::Operation::allreduce && call.segments == nullptr)
    started.is_published_ = node_->start_allreduce(reduction_of(call, slot_channel_->size()));
  return started;
}

Result<void> HostBackend::finish(const StartedCall& started, calls::Watchdog& watchdog) {
  const calls::Call& call = started.call_;
  if (slot_channel_) slot_channel_->wait_under(watchdog);
  if (started.is_published_) return node_->finish_allreduce(reduction_of(call, slot_channel_->size()));
  if (is_point_to_point(call.operation)) return exchange({&call, 1}, watchdog);
  auto done = run_collective(call, started.signature_, watchdog);
  if (!done && slot_channel_) slot_channel_->give_up();
  return done;
}

Result<void> HostBackend::run_collective(const calls::Call& call, std::uint32_t signature, calls::Watchdog& watchdog) {
  if (!is_one_node_) return run_on_nodes(call, signature, watchdog);
  return run_on(*node_, call, reduction_of(call, slot_channel_->size()), static_cast<std::size_t>(call.root));
}

Result<void> HostBackend::run_on_nodes(const calls::Call& call, std::uint32_t signature, calls::Watchdog& watchdog) {
  all_->begin_call(signature, watchdog);
  nodes_->begin_call(signature, watchdog);
  calls::Reduction what = reduction_of(call, watch_.members().size());
  if (what.op == calls::ReduceOp::avg) what.op = calls::ReduceOp::sum;
  const calls::BufferSegments* const segments = std::exchange(what.segments, nullptr);
  const std::size_t bytes = call.count * size_of(call.type);
  for_segments(segments, 0, bytes, [&](const calls::BufferSegment& segment) {
    copy_bytes(what.recv + segment.offset, segment.data, segment.bytes);
  });
  const auto root = static_cast<std::size_t>(call.root);
  auto done = topology_.most_on_a_node() > 1 ? run_on(*nodes_, call, what, root) : run_on(*all_, call, what, root);
  if (done && call.redop == calls::ReduceOp::avg && has_result(call, watch_.rank())) divide(what);
  if (!done) return done;
  for_segments(segments, 0, bytes, [&](const calls::BufferSegment& segment) {
    copy_bytes(segment.data, what.recv + segment.offset, segment.bytes);
  });
  return done;
}

Result<void> HostBackend::exchange(std::span<const calls::Call> messages, calls::Watchdog& watchdog) {
  sends_.clear();
  receives_.clear();
  for (const calls::Call& call : messages) {
    (call.operation == calls::Operation::send ? sends_ : receives_).push_back(message_of(call));
  }
  return messages_->exchange(sends_, receives_, watchdog);
}

Result<void*> HostBackend::allocate(std::size_t bytes) {
  if (!arenas_) {  // one rank on its node, or no shared memory: there is no rank to share with
    auto alone = Arenas::create(0, 1);
    if (!alone) return alone.error();
    arenas_ = std::move(*alone);
  }
  return arenas_->allocate(bytes);
}

Result<void> HostBackend::release(void* memory) {
  if (arenas_) return arenas_->release(memory);
  return Error{Errc::invalid_argument, "amldist_free: this memory is not from amldist_alloc() of this communicator"};
}

Result<void> HostBackend::register_memory(void* memory, std::size_t bytes) {
  return node_ ? arenas_->register_memory(memory, bytes) : Arenas::check_whole_pages(memory, bytes);
}

Result<void> HostBackend::deregister_memory(void* memory) {
  return node_ ? arenas_->deregister_memory(memory) : Result<void>();
}

/// The last step of an average whose sum went over several levels.
void HostBackend::divide(const calls::Reduction& what) const {
  if (what.count == 0) return;
  const void* const source = what.recv;
  kernels_.fold({what.recv, nullptr, &source, 1, what.count, what.divisor, Store::cached}, what.type,
                calls::ReduceOp::avg);
}

}  // namespace amldist::collective
