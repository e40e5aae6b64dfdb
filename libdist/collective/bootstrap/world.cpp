#include "collective/bootstrap/world.hpp"

#include <poll.h>

#include "core/hex.hpp"
#include "core/printable.hpp"
#include "core/text.hpp"
#include "os/own_network.hpp"
#include "wireup/acceptor.hpp"
#include "wireup/joiner.hpp"
#include "wireup/limits.hpp"

namespace amldist::collective {
namespace {

using text::concat;

Member self(const std::string& node_name, const FileDescriptor& listener) {
  Member me;
  me.node = node_name.empty() ? own_host_name() : node_name;
  me.host = text::printable(me.node, wireup::limits.host_characters);
  me.pid = static_cast<std::uint32_t>(::getpid());
  me.port = local_port(listener);
  return me;
}

std::string group_name(std::string_view job) { return concat({"amldist_init ", job}); }

// ---- rank 0 ----

/// Rank 0's side: lets the others in, and sends them the member table.
class Root {
 public:
  Root(World& world, std::string_view job, const WorldSecret& secret)
      : world_(world), secret_(secret), acceptor_({group_name(job), 1, world.size}, world.credentials) {}

  [[nodiscard]] Result<void> gather(const FileDescriptor& listener, RootAddress& root, Clock::time_point deadline) {
    while (!acceptor_.is_complete()) {
      if (Clock::now() >= deadline) return give_up(missing());
      root.progress();
      std::vector<pollfd> wanted = {{listener.get(), POLLIN, 0}};
      acceptor_.add_to(wanted);
      constexpr int milliseconds = 10;
      static_cast<void>(::poll(wanted.data(), wanted.size(), milliseconds));
      auto admitted = acceptor_.serve(listener, Clock::now());
      if (!admitted) return give_up(admitted.error());
      for (wireup::Greeting& each : *admitted) enter(each);
    }
    if (secret_.file) secret_.file->remove();  // before anybody can begin a next world
    return send_table(deadline);
  }

 private:
  void enter(wireup::Greeting& greeting) {
    const auto rank = static_cast<std::uint32_t>(greeting.number);
    Member member;
    member.host = greeting.host;
    if (!read_details(greeting.details, member)) return acceptor_.dismiss(rank);
    const FileDescriptor& link = acceptor_.link(rank);
    const Ipv4 from = peer_address(link);
    if (!from.is_loopback() && from != own_address(link)) member.address = from;
    world_.members[rank] = std::move(member);
  }

  [[nodiscard]] Error missing() const {
    const auto absent = acceptor_.missing();
    return {Errc::timeout, concat({absent.size() == 1 ? "rank " : "ranks ", wireup::list_numbers(absent),
                                   absent.size() == 1 ? " is" : " are", " missing in amldist_init: ",
                                   std::to_string(world_.size - absent.size()), " of ", std::to_string(world_.size),
                                   " processes came to rank 0 (", world_.members[0].host, ") before the deadline"})};
  }

  Result<void> give_up(const Error& error) {
    acceptor_.refuse_all(error, Clock::now() + std::chrono::milliseconds(200));
    return error;
  }

  [[nodiscard]] Result<void> send_table(Clock::time_point deadline) {
    const std::string frame = to_frame({world_.nonce, world_.members});
    for (std::uint32_t rank = 1; rank < world_.size; ++rank) {
      if (auto sent = send_all(acceptor_.link(rank), frame, deadline); !sent) {
        return give_up({Errc::peer, concat({"rank ", std::to_string(rank), " (", world_.members[rank].host,
                                            ") is missing in amldist_init: ", sent.error().message})});
      }
    }
    world_.links = acceptor_.take_links();
    return {};
  }

  World& world_;
  const WorldSecret& secret_;
  wireup::Acceptor acceptor_;
};

Result<World> join_as_root(World world, RootAddress& root, const WorldSecret& secret, std::string_view job,
                           const std::string& node_name, Clock::time_point deadline) {
  world.nonce = wireup::random_number();
  auto listener = root.publish();
  if (!listener) return listener.error();
  world.members[0] = self(node_name, world.listener);
  if (auto done = Root(world, job, secret).gather(*listener, root, deadline); !done) return done.error();
  for (Member& member : world.members) {
    if (member.address.bits == 0) member.address = *Ipv4::parse("127.0.0.1");
  }
  return world;
}

// ---- the others ----

std::string greeting_of(const World& world, std::string_view job, const std::string& node_name) {
  const Member me = self(node_name, world.listener);
  const wireup::Greeting greeting = {group_name(job), world.rank, world.size, wireup::random_number(), me.host, {}};
  auto writer = greeting.to_frame();
  write_details(writer, me);
  return writer.take();
}

Result<World> join_as_peer(World world, RootAddress& root, std::string_view job, const std::string& node_name,
                           Clock::time_point deadline) {
  const wireup::Destination destination = {[&root](Clock::time_point until) { return root.look_up(until); },
                                           concat({"rank 0 is missing in amldist_init: ", root.to_string()}), ""};
  const wireup::GroupKey group(world.credentials, group_name(job));
  auto joined = wireup::join(destination, greeting_of(world, job, node_name), group, deadline);
  if (!joined) return joined.error();
  // Rank 0 has the same deadline; what it then says about who is missing needs time to come.
  auto frame = wireup::read_frame(joined->link, wireup::limits.frame_bytes, deadline + std::chrono::seconds(2));
  if (!frame) {
    return Error{Errc::timeout, concat({"amldist_init: rank 0 is at ", joined->where.to_string(),
                                        " but the world was not complete before the deadline"})};
  }
  if (frame->kind<wireup::HandshakeKind>() == wireup::HandshakeKind::refused) return wireup::read_refusal(*frame);
  auto table = read_member_table(*frame, world.size, peer_address(joined->link));
  if (!table) return table.error();
  world.nonce = table->nonce;
  world.members = std::move(table->members);
  world.links.push_back(std::move(joined->link));
  return world;
}

}  // namespace

World single_process_world(const std::string& node_name) {
  World world;
  world.members = {self(node_name, FileDescriptor())};
  return world;
}

wireup::GroupKey key_of_connections(const World& world) {
  return {world.credentials, concat({"connections of world ", to_hex(world.nonce, sizeof world.nonce)})};
}

Result<World> join_world(const ProcessIdentity& identity, RootAddress& root, const WorldSecret& secret,
                         std::string_view job, const std::string& node_name, Clock::time_point deadline) {
  World world;
  world.rank = identity.rank;
  world.size = identity.size;
  world.credentials = secret.credentials;
  world.provenance =
      concat({identity.source, "; ", root.to_string(), "; ", wireup::to_string(secret.credentials.trust)});
  auto listener = listen_on(0);
  if (!listener) return listener.error();
  world.listener = std::move(*listener);
  if (world.rank != 0) return join_as_peer(std::move(world), root, job, node_name, deadline);
  world.members.resize(world.size);
  auto joined = join_as_root(std::move(world), root, secret, job, node_name, deadline);
  if (!joined && secret.file) secret.file->remove();
  return joined;
}

}  // namespace amldist::collective
