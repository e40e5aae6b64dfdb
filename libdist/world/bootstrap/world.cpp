#include "world/bootstrap/world.hpp"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/net/own_network.hpp"
#include "base/os/descriptor_limit.hpp"
#include "base/text/hex.hpp"
#include "base/text/printable.hpp"
#include "base/text/text.hpp"
#include "world/bootstrap/node_leader.hpp"
#include "world/bootstrap/tree_builder.hpp"
#include "world/wireup/joiner.hpp"
#include "world/wireup/limits.hpp"

namespace amldist::world {
namespace {

using std::chrono::milliseconds;
using text::concat;

/// Counts the worlds that this process has been in, by the name that all their processes use. A process may have been
/// in worlds that the rest of its node was not in.
class WorldsJoined {
 public:
  [[nodiscard]] static WorldsJoined& of_process() {
    static WorldsJoined one;
    return one;
  }
  [[nodiscard]] std::uint32_t count(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return counts_[name];
  }
  void add(const std::string& name) {
    const std::lock_guard lock(mutex_);
    ++counts_[name];
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::uint32_t> counts_;
};

/// The upper half is the process's, the lower half that of this attempt to join.
std::uint64_t number_of_process() noexcept {
  static const std::uint64_t chosen = world::random_number();
  const std::uint64_t own = (chosen ^ static_cast<std::uint64_t>(::getpid())) << 32;  // differs in a forked process
  return own | (world::random_number() >> 32) | 1;
}

OwnPlace own_place(const launch::ProcessIdentity& identity, const WorldSecret& secret, std::string_view job,
                   const std::string& step, const std::string& node_name, const FileDescriptor& listener) {
  const std::string group = concat({"amldist_init ", job});
  OwnPlace own(world::GroupKey(secret.credentials, group));
  own.group = group;
  own.node_group = concat({own.group, " node ", step, " ",
                           std::to_string(WorldsJoined::of_process().count(concat({own.group, " ", step})))});
  own.rank = identity.rank;
  own.size = identity.size;
  own.process = number_of_process();
  own.node = node_name.empty() ? own_host_name() : node_name;
  own.host = text::printable(own.node, world::limits.host_characters);
  own.port = local_port(listener);
  return own;
}

/// Whether rank 0 listens on another machine than this one, as far as addresses tell: a name may mean either, and
/// every machine has a loopback address.
bool is_on_another_machine(std::span<const Endpoint> root) {
  const auto own = own_addresses();
  bool has_foreign = false;
  for (const Endpoint& each : root) {
    const auto address = IpAddress::parse(each.host);
    if (address && address->is_loopback()) continue;
    if (!address || std::ranges::find(own, *address) != own.end()) return false;
    has_foreign = true;
  }
  return has_foreign;
}

/// How long a process lets another one of its node become leader first. Only a preference: rank 0 is the root, and is
/// best also the leader of its node; on the other nodes any process is as good.
milliseconds patience_of(const launch::ProcessIdentity& identity, std::span<const Endpoint> root) {
  constexpr milliseconds for_first(100);
  constexpr milliseconds for_any(20);
  if (identity.rank == 0 || identity.local_rank == 0U || is_on_another_machine(root)) return milliseconds(0);
  return identity.local_rank ? for_first : for_any;
}

World world_of(BuiltTree built) {
  World world;
  world.table = std::move(built.table);
  world.links = std::move(built.links);
  world.early = std::move(built.early);
  world.ended = std::move(built.ended);
  world.process_of_rank = std::move(built.process_of_rank);
  return world;
}

/// `published`: the address to which the others connect first; only rank 0 has it.
struct Listeners {
  const FileDescriptor& own;
  const FileDescriptor& published;
};

Result<World> lead(const OwnPlace& own, RootAddress& root, const Listeners& listeners,
                   const FileDescriptor& node_listener, Clock::time_point deadline) {
  TreeBuilder builder(own, listeners.own, node_listener);
  auto built = own.rank == 0 ? builder.serve_as_root(listeners.published, root, deadline)
                             : builder.serve_as_leader(root, deadline);
  if (!built) return built.error();
  return world_of(std::move(*built));
}

/// nullopt: the process that answered is not the leader of this world any more.
Result<std::optional<World>> follow(const OwnPlace& own, FileDescriptor leader, Clock::time_point deadline) {
  const auto accepted = world::introduce(leader, own.join_request(JoinPurpose::follower), own.key, deadline);
  if (!accepted) return accepted.error();
  if (!*accepted) return std::optional<World>();
  auto table = receive_table(leader, own.size, deadline);
  if (!table) return table.error();
  World world;
  world.table = std::move(*table);
  auto link = std::make_unique<FrameLink>();
  link->socket = std::move(leader);
  link->rank = world.table.leader_of(world.table.vertex_of(own.rank));
  world.links.push_back(std::move(link));
  return std::optional(std::move(world));
}

Result<World> find_place(milliseconds patience, const OwnPlace& own, RootAddress& root, const Listeners& listeners,
                         Clock::time_point deadline) {
  const std::string name = node_leader_name(own.key.key(), own.node_group, own.node);
  for (;;) {
    NodeLeader found = find_node_leader(name, patience, deadline);
    if (!found.leader || own.rank == 0) return lead(own, root, listeners, found.listener, deadline);
    auto world = follow(own, std::move(found.leader), deadline);
    if (!world) return world.error();
    if (*world) return std::move(**world);
    std::this_thread::sleep_for(milliseconds(5));
  }
}

}  // namespace

bool is_same_process(std::uint64_t one, std::uint64_t other) noexcept { return one >> 32 == other >> 32; }

World single_process_world(const std::string& node_name) {
  const std::string node = node_name.empty() ? own_host_name() : node_name;
  const TableNode entry = {text::printable(node, world::limits.host_characters), node, 0, {}};
  const TableRank rank;
  World world;
  auto table = RankTable::read(table_bytes(0, {&entry, 1}, {&rank, 1}), 1, *Ipv4::parse("127.0.0.1"));
  if (table) world.table = std::move(*table);
  return world;
}

world::GroupKey key_of_connections(const World& world) {
  return {world.credentials, concat({"connections of world ", to_hex(world.table.nonce(), sizeof(std::uint64_t))})};
}

Result<World> join_world(const launch::ProcessIdentity& identity, RootAddress& root, const WorldSecret& secret,
                         std::string_view job, const std::string& node_name, Clock::time_point deadline) {
  // Those of the tree, and two for each rank with which a call may communicate.
  constexpr std::size_t of_the_tree = 256;
  make_room_for_descriptors(of_the_tree + std::size_t{2} * identity.size);
  auto listener = root.listen();
  if (!listener) return listener.error();
  FileDescriptor published;
  std::vector<Endpoint> where;
  std::uint16_t root_port = 0;
  if (identity.rank == 0) {
    auto made = root.publish();
    if (!made) return made.error();
    published = std::move(*made);
    root_port = local_port(published);
  } else {  // under PMIx and MPI every process takes part in finding rank 0
    auto found = root.look_up(deadline);
    if (!found) return found.error();
    where = std::move(*found);
    if (!where.empty()) root_port = where.front().port;
  }
  const OwnPlace own = own_place(identity, secret, job, root.step_name(root_port), node_name, *listener);
  auto world = find_place(patience_of(identity, where), own, root, {*listener, published}, deadline);
  if (!world) return world;
  WorldsJoined::of_process().add(concat({own.group, " ", root.step_name(root_port)}));
  world->rank = identity.rank;
  world->size = identity.size;
  world->listener = std::move(*listener);
  world->credentials = secret.credentials;
  if (identity.rank == 0) {
    if (FileDescriptor place = root.take_place())
      world->late_joiners = LateJoiners{std::move(place), own.key, own.group, std::move(world->process_of_rank), {}};
  }
  world->provenance =
      concat({identity.source, "; ", root.to_string(), "; ", world::to_string(secret.credentials.trust)});
  return world;
}

}  // namespace amldist::world
