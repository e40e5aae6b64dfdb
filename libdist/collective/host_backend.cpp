#include "collective/host_backend.hpp"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "core/text.hpp"

namespace amldist::collective {
namespace {

using text::concat;

constexpr std::size_t slot_bytes = 512UL << 10;
// Between nodes: up to here one message of a node's leader is quicker than slices of all its ranks.
constexpr std::size_t by_leaders_up_to = 4096;

const std::byte* bytes_of(const void* data) { return static_cast<const std::byte*>(data); }
std::byte* bytes_of(void* data) { return static_cast<std::byte*>(data); }

std::string own_processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  static_cast<void>(::sched_getaffinity(0, sizeof set, &set));
  return {reinterpret_cast<const char*>(&set), sizeof set};
}

/// Processors that the ranks of a node may use together.
std::size_t processors_together(const std::vector<std::string>& sets) {
  cpu_set_t together;
  CPU_ZERO(&together);
  for (const std::string& bytes : sets) {
    cpu_set_t set;
    CPU_ZERO(&set);
    std::memcpy(&set, bytes.data(), std::min(sizeof set, bytes.size()));
    CPU_OR(&together, &together, &set);
  }
  return static_cast<std::size_t>(CPU_COUNT(&together));
}

/// Signature of one message: what sender and receiver must agree on.
std::uint32_t message_signature(const Call& call) {
  Call plain = call;
  plain.operation = Operation::send;
  plain.root = 0;
  return signature_of(plain);
}

/// Signature of one collective: also of its number, so that a rank that is one call behind is noticed.
std::uint32_t numbered_signature(const Call& call) {
  return signature_of(call) ^ (static_cast<std::uint32_t>(call.sequence) * 0x9e3779b9U);
}

Reduction reduction_of(const Call& call, std::size_t ranks) {
  return {bytes_of(call.send), bytes_of(call.recv), call.count, call.type, call.redop, ranks};
}

Blocks blocks_of(const Call& call) {
  return call.recv_counts.empty() ? Blocks(call.count) : Blocks(call.recv_counts, call.recv_offsets);
}

std::vector<std::string> node_names(const ControlChannel& channel, const CommWatch& watch) {
  std::vector<std::string> names;
  for (const std::uint32_t member : watch.members()) names.push_back(channel.member(member).node);
  return names;
}

std::size_t index_of(const std::vector<int>& ranks, int rank) {
  return static_cast<std::size_t>(std::ranges::find(ranks, rank) - ranks.begin());
}

}  // namespace

// ------------------------------------------------------------------------------------------------------------ building
HostBackend::HostBackend(ControlChannel& channel, const CommWatch& watch, Topology topology)
    : watch_(watch), topology_(std::move(topology)), transport_(channel, watch) {}

Result<std::unique_ptr<HostBackend>> HostBackend::create(ControlChannel& channel, const CommWatch& watch,
                                                         const Gather& gather) {
  const int rank = static_cast<int>(watch.rank());
  std::unique_ptr<HostBackend> out(new HostBackend(channel, watch, Topology::of(node_names(channel, watch), rank)));
  if (out->topology_.most_on_a_node() > 1) {
    if (auto shared = out->share_memory(gather); !shared) return shared.error();
  }
  const Topology& topology = out->topology_;
  PeerGroup all;
  PeerGroup leaders;
  PeerGroup rail;
  for (int r = 0; r < static_cast<int>(watch.members().size()); ++r) all.ranks.push_back(r);
  all.own = watch.rank();
  for (const auto& ranks : topology.nodes) {
    leaders.ranks.push_back(ranks.front());
    if (topology.own_index < ranks.size()) rail.ranks.push_back(ranks[topology.own_index]);
  }
  leaders.own = rail.own = topology.own_node;
  out->all_.emplace(out->transport_, std::move(all), out->kernels_);
  if (topology.own_index == 0) out->leaders_.emplace(out->transport_, std::move(leaders), out->kernels_);
  if (topology.own_index < topology.fewest_on_a_node()) {
    out->rail_.emplace(out->transport_, std::move(rail), out->kernels_);
  }
  if (topology.nodes.size() == 1) out->name_ = "shared memory";
  else out->name_ = out->node_ ? "hierarchical" : "tcp";
  return out;
}

/// The first rank of each node makes the memory, the others open it; then everybody learns whether all could.
Result<void> HostBackend::share_memory(const Gather& gather) {
  const auto& ranks = topology_.own_ranks();
  const auto size = static_cast<std::uint32_t>(ranks.size());
  const std::size_t bytes = Rounds::memory_bytes(size, slot_bytes);
  std::string problem;
  if (topology_.own_index == 0 && size > 1) {
    auto made = SharedMemory::create(bytes);
    if (made) memory_ = std::move(*made);
    else problem = made.error().message;
  }
  if (auto made = Arenas::create(topology_.own_index, size)) arenas_ = std::move(*made);
  else problem = made.error().message;
  std::string piece = own_processors();
  if (memory_.data() != nullptr) piece += memory_.address();
  piece += concat({"\n", arenas_ ? arenas_->address() : ""});
  const auto pieces = gather(std::move(piece));
  if (!pieces) return pieces.error();
  std::vector<std::string> addresses;
  for (const int rank : ranks) {
    const std::string& theirs = (*pieces)[static_cast<std::size_t>(rank)];
    addresses.push_back(theirs.substr(theirs.find('\n', sizeof(cpu_set_t)) + 1));
  }
  if (topology_.own_index != 0) {
    const std::string& first = (*pieces)[static_cast<std::size_t>(ranks[0])];
    auto opened = SharedMemory::open(
        first.substr(sizeof(cpu_set_t), first.find('\n', sizeof(cpu_set_t)) - sizeof(cpu_set_t)), bytes);
    if (opened) memory_ = std::move(*opened);
    else problem = opened.error().message;
  }
  if (arenas_ && problem.empty()) {
    if (auto opened = arenas_->open(addresses); !opened) problem = opened.error().message;
  }
  const auto problems = gather(problem);
  if (!problems) return problems.error();
  memory_.close_file();
  for (const std::string& each : *problems) {
    if (!each.empty()) {
      separate_all(each);
      return {};
    }
  }
  if (size == 1) return {};
  std::vector<std::string> sets;
  for (const int rank : ranks) sets.push_back((*pieces)[static_cast<std::size_t>(rank)]);
  NodePlace place = {static_cast<std::uint32_t>(topology_.own_index), size, ranks};
  rounds_.emplace(memory_.data(), std::move(place), slot_bytes, processors_together(sets) < size);
  node_.emplace(*rounds_, kernels_, &*arenas_);
  return {};
}

/// Without shared memory somewhere every rank counts as a node of its own.
void HostBackend::separate_all(std::string why) {
  trouble_ = std::move(why);
  memory_ = SharedMemory();
  arenas_.reset();
  const int size = static_cast<int>(watch_.members().size());
  topology_ = Topology();
  for (int r = 0; r < size; ++r) topology_.nodes.push_back({r});
  topology_.own_node = watch_.rank();
}

std::string HostBackend::describe() const {
  std::string text;
  if (node_) text = concat({"shared memory (", to_string(kernels_.instruction_set()), ")"});
  if (topology_.nodes.size() > 1) {
    text += concat({text.empty() ? "" : ", ", "tcp between ", std::to_string(topology_.nodes.size()), " nodes"});
  }
  if (!trouble_.empty()) text += concat({" (no shared memory: ", trouble_, ")"});
  return text.empty() ? "one process" : text;
}

// ------------------------------------------------------------------------------------------------------------- running
Result<void> HostBackend::run(const Call& call, Vigil& vigil) {
  if (is_point_to_point(call.operation)) return run_group({&call, 1}, vigil);
  vigil_ = &vigil;
  signature_ = numbered_signature(call);
  if (rounds_) rounds_->begin_call(signature_, vigil);
  for (auto* peers : {&all_, &leaders_, &rail_}) {
    if (*peers) (*peers)->begin_call(signature_, vigil);
  }
  if (topology_.nodes.size() == 1 && node_) return run_in_node(call);
  if (node_ || topology_.most_on_a_node() > 1) return run_between_nodes(call);
  return run_flat(call);
}

Result<void> HostBackend::run_group(std::span<const Call> messages, Vigil& vigil) {
  std::vector<Message> sends;
  std::vector<Message> receives;
  for (const Call& call : messages) {
    const std::size_t bytes = call.count * size_of(call.type);
    // A message only reads what it sends.
    void* const data = call.operation == Operation::send ? const_cast<void*>(call.send) : call.recv;  // NOLINT
    (call.operation == Operation::send ? sends : receives)
        .push_back({call.root, static_cast<std::byte*>(data), bytes, message_signature(call)});
  }
  return transport_.exchange(sends, receives, vigil);
}

Result<void*> HostBackend::allocate(std::size_t bytes) {
  if (!arenas_) {  // one rank on its node, or no shared memory: nobody to share with
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

Result<void> HostBackend::run_in_node(const Call& call) {
  const std::size_t unit = size_of(call.type);
  const auto root = static_cast<std::uint32_t>(call.root);
  const Reduction what = reduction_of(call, topology_.own_ranks().size());
  switch (call.operation) {
    case Operation::allreduce:
      return node_->allreduce(what);
    case Operation::reduce:
      return node_->reduce(what, root);
    case Operation::reduce_scatter:
      return node_->reduce_scatter(what, Blocks(call.count));
    case Operation::broadcast:
      return node_->broadcast(what.recv, call.count * unit, root);
    case Operation::allgather:
    case Operation::allgatherv:
      return node_->allgather(what.send, what.recv, blocks_of(call), unit);
    case Operation::gather:
      return node_->gather(what.send, what.recv, Blocks(call.count), unit, root);
    case Operation::scatter:
      return node_->scatter(what.send, what.recv, Blocks(call.count), unit, root);
    case Operation::alltoall:
      return node_->alltoall(what.send, Blocks(call.count), what.recv, Blocks(call.count), unit);
    case Operation::alltoallv:
      return node_->alltoall(what.send, Blocks(call.send_counts, call.send_offsets), what.recv,
                             Blocks(call.recv_counts, call.recv_offsets), unit);
    default:
      return node_->barrier();
  }
}

Result<void> HostBackend::run_between_nodes(const Call& call) {
  const Reduction what = reduction_of(call, watch_.members().size());
  switch (call.operation) {
    case Operation::allreduce:
      return hierarchical_allreduce(what);
    case Operation::reduce:
      return hierarchical_reduce(what, call.root);
    case Operation::broadcast:
      return hierarchical_broadcast(what.recv, call.count * size_of(call.type), call.root);
    case Operation::allgather:
    case Operation::allgatherv:
      if (topology_.fewest_on_a_node() == topology_.most_on_a_node()) {
        return hierarchical_allgather(call, blocks_of(call));
      }
      return run_flat(call);
    case Operation::reduce_scatter:
    case Operation::gather:
    case Operation::scatter:
    case Operation::alltoall:
    case Operation::alltoallv:
      return run_flat(call);
    default:
      return hierarchical_barrier();
  }
}

Result<void> HostBackend::run_flat(const Call& call) {
  const std::size_t unit = size_of(call.type);
  const auto root = static_cast<std::size_t>(call.root);
  const Reduction what = reduction_of(call, watch_.members().size());
  switch (call.operation) {
    case Operation::allreduce:
      return whole_allreduce(what);
    case Operation::reduce: {
      auto done = all_->reduce(what, root);
      if (done && call.root == static_cast<int>(watch_.rank())) divide(what);
      return done;
    }
    case Operation::reduce_scatter: {
      auto done = all_->reduce_scatter(what, Blocks(call.count));
      if (done) divide(what);
      return done;
    }
    case Operation::broadcast:
      return all_->broadcast(what.recv, call.count * unit, root);
    case Operation::allgather:
    case Operation::allgatherv:
      return all_->allgather(what.send, what.recv, blocks_of(call), unit);
    case Operation::gather:
      return all_->gather(what.send, what.recv, Blocks(call.count), unit, root);
    case Operation::scatter:
      return all_->scatter(what.send, what.recv, Blocks(call.count), unit, root);
    case Operation::alltoall:
      return all_->alltoall(what.send, Blocks(call.count), what.recv, Blocks(call.count), unit);
    case Operation::alltoallv:
      return all_->alltoall(what.send, Blocks(call.send_counts, call.send_offsets), what.recv,
                            Blocks(call.recv_counts, call.recv_offsets), unit);
    default:
      return all_->barrier();
  }
}

Result<void> HostBackend::whole_allreduce(const Reduction& what) {
  auto done = all_->allreduce(what);
  if (done) divide(what);
  return done;
}

/// The end of an average whose sum went over several levels.
void HostBackend::divide(const Reduction& what) const {
  if (what.op != ReduceOp::avg || what.count == 0) return;
  const void* const source = what.recv;
  kernels_.fold({what.recv, nullptr, &source, 1, what.count, what.divisor, Store::cached}, what.type, ReduceOp::avg);
}

// -------------------------------------------------------------------------------------------------------- hierarchical
Result<void> HostBackend::hierarchical_allreduce(const Reduction& what) {
  Reduction sum = what;
  if (sum.op == ReduceOp::avg) sum.op = ReduceOp::sum;
  const bool small = what.count * size_of(what.type) <= by_leaders_up_to;
  auto done = small || topology_.fewest_on_a_node() == 1 ? allreduce_by_leaders(sum) : allreduce_by_slices(sum);
  if (done) divide(what);
  return done;
}

Result<void> HostBackend::allreduce_by_leaders(const Reduction& what) {
  if (node_) {
    if (auto done = node_->reduce(what, 0); !done) return done;
  } else if (what.send != what.recv) {
    std::memcpy(what.recv, what.send, what.count * size_of(what.type));
  }
  if (leaders_) {
    Reduction between = what;
    between.send = what.recv;
    if (auto done = leaders_->allreduce(between); !done) return done;
  }
  return node_ ? node_->broadcast(what.recv, what.count * size_of(what.type), 0) : Result<void>();
}

/// Every rank of a node takes one slice of the node's sum to its peers on the other nodes.
Result<void> HostBackend::allreduce_by_slices(const Reduction& what) {
  const std::size_t unit = size_of(what.type);
  const std::size_t rails = topology_.fewest_on_a_node();
  const std::size_t ranks = topology_.own_ranks().size();
  const std::size_t grain = 64 / unit;
  const std::size_t each = ((what.count + rails - 1) / rails + grain - 1) / grain * grain;
  std::vector<std::size_t> offsets(ranks);
  std::vector<std::size_t> counts(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    offsets[r] = std::min(what.count, r * each);
    counts[r] = r < rails ? std::min(what.count, (r + 1) * each) - offsets[r] : 0;
  }
  const Blocks blocks(counts, offsets);
  std::byte* const slice = what.recv + offsets[topology_.own_index] * unit;
  Reduction mine = what;
  mine.recv = slice;
  if (node_) {
    if (auto done = node_->reduce_scatter(mine, blocks); !done) return done;
  }
  if (rail_) {
    mine.send = slice;
    mine.count = counts[topology_.own_index];
    if (auto done = rail_->allreduce(mine); !done) return done;
  }
  return node_ ? node_->allgather(slice, what.recv, blocks, unit) : Result<void>();
}

PeerCollectives HostBackend::agents(int agent) {
  PeerGroup group;
  const std::size_t home = topology_.node_of(agent);
  for (std::size_t n = 0; n < topology_.nodes.size(); ++n) {
    group.ranks.push_back(n == home ? agent : topology_.nodes[n].front());
  }
  group.own = topology_.own_node;
  PeerCollectives out(transport_, std::move(group), kernels_);
  out.begin_call(signature_, *vigil_);
  return out;
}

Result<void> HostBackend::hierarchical_reduce(const Reduction& what, int root) {
  const std::size_t unit = size_of(what.type);
  const bool is_root = static_cast<int>(watch_.rank()) == root;
  PeerCollectives between = agents(root);
  const int agent = between.group().ranks[topology_.own_node];
  const bool is_agent = static_cast<int>(watch_.rank()) == agent;
  constexpr std::size_t longest_piece = 1UL << 20;
  const std::size_t most = longest_piece / unit;
  for (std::size_t at = 0; at < what.count; at += most) {
    Reduction part = what;
    part.op = what.op == ReduceOp::avg ? ReduceOp::sum : what.op;
    part.count = std::min(most, what.count - at);
    part.send = what.send + at * unit;
    if (!is_root && piece_.size() < part.count * unit) piece_.resize(part.count * unit);
    part.recv = is_root ? what.recv + at * unit : piece_.data();
    if (node_) {
      const auto local = static_cast<std::uint32_t>(index_of(topology_.own_ranks(), agent));
      if (auto done = node_->reduce(part, local); !done) return done;
      part.send = part.recv;
    }
    if (!is_agent) continue;
    if (auto done = between.reduce(part, topology_.node_of(root)); !done) return done;
  }
  if (is_root) divide(what);
  return {};
}

Result<void> HostBackend::hierarchical_broadcast(std::byte* buffer, std::size_t bytes, int root) {
  PeerCollectives between = agents(root);
  const int agent = between.group().ranks[topology_.own_node];
  if (static_cast<int>(watch_.rank()) == agent) {
    if (auto done = between.broadcast(buffer, bytes, topology_.node_of(root)); !done) return done;
  }
  if (!node_) return {};
  return node_->broadcast(buffer, bytes, static_cast<std::uint32_t>(index_of(topology_.own_ranks(), agent)));
}

/// Every rank gathers the blocks of its peers on the other nodes, then the node's ranks share what they have.
Result<void> HostBackend::hierarchical_allgather(const Call& call, const Blocks& blocks) {
  const std::size_t unit = size_of(call.type);
  std::byte* const recv = bytes_of(call.recv);
  const std::size_t index = topology_.own_index;
  std::vector<std::size_t> counts(topology_.nodes.size());
  std::vector<std::size_t> offsets(topology_.nodes.size());
  const auto fill = [&](auto rank_at, std::size_t number) {
    counts.resize(number);
    offsets.resize(number);
    for (std::size_t i = 0; i < number; ++i) {
      counts[i] = blocks.count(static_cast<std::size_t>(rank_at(i)));
      offsets[i] = blocks.offset(static_cast<std::size_t>(rank_at(i)));
    }
  };
  fill([&](std::size_t n) { return topology_.nodes[n][index]; }, topology_.nodes.size());
  if (auto done = rail_->allgather(bytes_of(call.send), recv, Blocks(counts, offsets), unit); !done) return done;
  for (std::size_t n = 0; node_ && n < topology_.nodes.size(); ++n) {
    fill([&](std::size_t i) { return topology_.nodes[n][i]; }, topology_.nodes[n].size());
    if (auto done = node_->allgather(recv + offsets[index] * unit, recv, Blocks(counts, offsets), unit); !done)
      return done;
  }
  return {};
}

Result<void> HostBackend::hierarchical_barrier() {
  if (node_) {
    if (auto done = node_->barrier(); !done) return done;
  }
  if (leaders_) {
    if (auto done = leaders_->barrier(); !done) return done;
  }
  return node_ ? node_->barrier() : Result<void>();
}

}  // namespace amldist::collective
