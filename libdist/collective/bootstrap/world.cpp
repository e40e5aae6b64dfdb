#include "collective/bootstrap/world.hpp"

#include <poll.h>
#include <sys/random.h>

#include <algorithm>
#include <thread>

#include "collective/bootstrap/wire.hpp"
#include "core/text.hpp"
#include "os/own_network.hpp"

namespace amldist::collective {
namespace {

using text::concat;

constexpr std::uint64_t protocol = 0x616d6c6469737401;  // "amldist" and a version

std::uint64_t random_number() noexcept {
  std::uint64_t number = 0;
  static_cast<void>(!::getrandom(&number, sizeof number, 0));
  return number;
}

Member self(const std::string& node_name, const FileDescriptor& listener) {
  Member me;
  me.host = node_name.empty() ? own_host_name() : node_name;
  me.node = me.host;
  me.pid = static_cast<std::uint32_t>(::getpid());
  me.port = local_port(listener);
  return me;
}

std::string ranks_text(const std::vector<std::uint32_t>& ranks) {
  constexpr std::size_t most = 16;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < std::min(ranks.size(), most); ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  if (ranks.size() > most) text += ", ...";
  return text;
}

// ---- rank 0 ----
struct Guest {
  FileDescriptor socket;
  std::string received;
};

/// Rank 0's side: takes the others in, and tells them where everybody is.
class Host {
 public:
  Host(World& world, std::string_view job) : world_(world), job_(job) {
    world_.links.resize(world_.size);
    world_.unread.resize(world_.size);
    world_.members.resize(world_.size);
  }

  [[nodiscard]] Result<void> take_in(const FileDescriptor& door, MeetingPoint& point, Clock::time_point deadline) {
    while (joined_ + 1 < world_.size) {
      std::vector<pollfd> wanted = {{door.get(), POLLIN, 0}};
      for (const Guest& guest : guests_) wanted.push_back({guest.socket.get(), POLLIN, 0});
      if (Clock::now() >= deadline) return give_up(missing());
      point.progress();
      constexpr int milliseconds = 10;
      static_cast<void>(::poll(wanted.data(), wanted.size(), milliseconds));
      while (FileDescriptor socket = accept_on(door)) guests_.push_back({std::move(socket), {}});
      for (std::size_t i = 0; i < guests_.size();) {
        auto heard = listen_to(guests_[i], deadline);
        if (!heard) return give_up(heard.error());
        if (*heard) ++i;
        else guests_.erase(guests_.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    return tell_everybody(deadline);
  }

 private:
  /// Whether the guest stays in the waiting room. An error ends the world.
  [[nodiscard]] Result<bool> listen_to(Guest& guest, Clock::time_point deadline) {
    const bool open = receive_available(guest.socket, guest.received);
    bool broken = guest.received.size() >= 12 && guest.received[4] != static_cast<char>(FrameKind::join);
    auto frame = take_frame(guest.received, broken);
    if (!frame) return open && !broken;
    if (frame->number() != protocol || frame->text() != job_) return false;  // somebody else's: it tries another port
    const std::uint64_t rank = frame->number();
    const std::uint64_t size = frame->number();
    Member member;
    member.host = frame->text();
    member.node = frame->text();
    member.pid = static_cast<std::uint32_t>(frame->number());
    member.port = static_cast<std::uint16_t>(frame->number());
    if (frame->is_short()) return false;
    if (size != world_.size || rank == 0 || rank >= world_.size) {
      return Error{Errc::mismatch,
                   concat({"rank ", std::to_string(rank), " (", member.host, ") believes in ",
                           text::count(size, "process"), " but rank 0 in ", std::to_string(world_.size)})};
    }
    if (world_.links[rank]) {
      return Error{Errc::mismatch, concat({"rank ", std::to_string(rank), " came twice: from ",
                                           world_.members[rank].host, " and from ", member.host})};
    }
    const Ipv4 from = peer_address(guest.socket);
    if (!from.is_loopback() && from != own_address(guest.socket)) member.address = from;
    static_cast<void>(send_all(guest.socket, FrameWriter(FrameKind::welcome).number(protocol).take(), deadline));
    world_.members[rank] = std::move(member);
    world_.links[rank] = std::move(guest.socket);
    ++joined_;
    return false;
  }

  [[nodiscard]] Error missing() const {
    std::vector<std::uint32_t> absent;
    for (std::uint32_t rank = 1; rank < world_.size; ++rank) {
      if (!world_.links[rank]) absent.push_back(rank);
    }
    const std::string_view verb = absent.size() == 1 ? " is" : " are";
    return {Errc::timeout, concat({ranks_text(absent), verb, " missing in amldist_init: ", std::to_string(joined_ + 1),
                                   " of ", std::to_string(world_.size), " processes came to rank 0 (",
                                   world_.members[0].host, ") before the deadline"})};
  }

  Result<void> give_up(const Error& error) {
    const std::string frame =
        FrameWriter(FrameKind::refused).number(static_cast<std::uint64_t>(error.code)).text(error.message).take();
    const auto soon = Clock::now() + std::chrono::milliseconds(200);
    for (const FileDescriptor& link : world_.links) {
      if (link) static_cast<void>(send_all(link, frame, soon));
    }
    return error;
  }

  /// An address of 0 stands for "the host of rank 0": each reader knows by which address it reaches that.
  [[nodiscard]] Result<void> tell_everybody(Clock::time_point deadline) {
    FrameWriter writer(FrameKind::table);
    writer.number(world_.nonce);
    for (const Member& member : world_.members) {
      writer.text(member.host).text(member.node).number(member.pid).number(member.address.bits).number(member.port);
    }
    const std::string frame = writer.take();
    for (std::uint32_t rank = 1; rank < world_.size; ++rank) {
      if (auto sent = send_all(world_.links[rank], frame, deadline); !sent) {
        return give_up({Errc::peer, concat({"rank ", std::to_string(rank), " (", world_.members[rank].host,
                                            ") is missing in amldist_init: ", sent.error().message})});
      }
    }
    return {};
  }

  World& world_;
  std::string_view job_;
  std::vector<Guest> guests_;
  std::uint32_t joined_ = 0;
};

// ---- the others ----
/// Waits for one frame; nullopt: the peer has gone, is no rank 0, or the deadline passed.
std::optional<Frame> wait_for_frame(const FileDescriptor& socket, std::string& received, Clock::time_point deadline) {
  for (;;) {
    bool broken = false;
    if (auto frame = take_frame(received, broken)) return frame;
    if (broken || !wait_until_ready(socket, Readiness::read, deadline)) return std::nullopt;
    const std::size_t before = received.size();
    if (!receive_available(socket, received) && received.size() == before) return std::nullopt;
  }
}

class Visitor {
 public:
  Visitor(World& world, std::string_view job) : world_(world), job_(job) {}

  [[nodiscard]] Result<void> join(MeetingPoint& point, Clock::time_point deadline) {
    if (auto connected = find_host(point, deadline); !connected) return connected;
    auto frame = wait_for_frame(world_.links[0], world_.unread[0], deadline + std::chrono::seconds(2));
    if (!frame)
      return Error{Errc::timeout, concat({"amldist_init: rank 0 is at ", where_,
                                          " but the world was not complete before the deadline"})};
    if (frame->kind() == FrameKind::refused) {
      const auto code = static_cast<Errc>(frame->number());
      return Error{code, frame->text()};
    }
    return read_table(*frame);
  }

 private:
  [[nodiscard]] Result<void> find_host(MeetingPoint& point, Clock::time_point deadline) {
    std::string last = "nothing answers";
    for (auto pause = std::chrono::milliseconds(2); Clock::now() < deadline;) {
      auto places = point.find(deadline);
      if (!places) return places.error();
      for (const Endpoint& place : *places) {
        const auto addresses = addresses_of(place.host);
        if (!addresses) last = addresses.error().message;
        for (std::size_t i = 0; addresses && i < addresses->size(); ++i) {
          const auto knocked = knock((*addresses)[i], place, deadline);
          if (knocked) return {};
          last = knocked.error().message;
        }
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, std::chrono::milliseconds(100));
    }
    return Error{Errc::timeout, concat({"rank 0 is missing in amldist_init: ", point.to_string(),
                                        " did not answer before the deadline (", last, ")"})};
  }

  /// Tries one address. Whoever does not greet within a second is no rank 0 of ours.
  [[nodiscard]] Result<void> knock(Ipv4 address, const Endpoint& place, Clock::time_point deadline) {
    const auto soon = std::min(deadline, Clock::now() + std::chrono::seconds(1));
    auto socket = connect_to(address, place.port, soon);
    if (!socket) return socket.error();
    const Member& me = world_.members[world_.rank];
    const std::string join = FrameWriter(FrameKind::join)
                                 .number(protocol)
                                 .text(job_)
                                 .number(world_.rank)
                                 .number(world_.size)
                                 .text(me.host)
                                 .text(me.node)
                                 .number(me.pid)
                                 .number(me.port)
                                 .take();
    if (auto sent = send_all(*socket, join, soon); !sent) return sent;
    std::string received;
    auto frame = wait_for_frame(*socket, received, soon);
    if (!frame || frame->kind() != FrameKind::welcome || frame->number() != protocol) {
      return Error{Errc::unavailable, concat({"what answers at ", address.to_string(), ":", std::to_string(place.port),
                                              " is not rank 0 of this step"})};
    }
    where_ = concat({address.to_string(), ":", std::to_string(place.port)});
    world_.links[0] = std::move(*socket);
    world_.unread[0] = std::move(received);
    return {};
  }

  [[nodiscard]] Result<void> read_table(Frame& frame) {
    const Ipv4 host = peer_address(world_.links[0]);
    world_.nonce = frame.number();
    for (Member& member : world_.members) {
      member.host = frame.text();
      member.node = frame.text();
      member.pid = static_cast<std::uint32_t>(frame.number());
      member.address.bits = static_cast<std::uint32_t>(frame.number());
      member.port = static_cast<std::uint16_t>(frame.number());
      if (member.address.bits == 0) member.address = host;
    }
    if (frame.kind() == FrameKind::table && !frame.is_short()) return {};
    return Error{Errc::peer, "rank 0 sent something else than the table of ranks: are all ranks of one release?"};
  }

  World& world_;
  std::string_view job_;
  std::string where_;
};

Result<World> join_as_host(World world, MeetingPoint& point, std::string_view job, const std::string& node_name,
                           Clock::time_point deadline) {
  world.nonce = random_number();
  auto door = point.open();
  if (!door) return door.error();
  Host host(world, job);
  world.members[0] = self(node_name, world.listener);
  if (auto done = host.take_in(*door, point, deadline); !done) return done.error();
  for (Member& member : world.members) {
    if (member.address.bits == 0) member.address = *Ipv4::parse("127.0.0.1");
  }
  return world;
}

}  // namespace

World single_process_world(const std::string& node_name) {
  World world;
  world.members = {self(node_name, FileDescriptor())};
  return world;
}

Result<World> join_world(const ProcessIdentity& identity, MeetingPoint& point, std::string_view job,
                         const std::string& node_name, Clock::time_point deadline) {
  World world;
  world.rank = identity.rank;
  world.size = identity.size;
  world.provenance = concat({identity.source, "; ", point.to_string()});
  auto listener = listen_on(0);
  if (!listener) return listener.error();
  world.listener = std::move(*listener);
  if (world.rank == 0) return join_as_host(std::move(world), point, job, node_name, deadline);
  world.members.resize(world.size);
  world.links.resize(1);
  world.unread.resize(1);
  world.members[world.rank] = self(node_name, world.listener);
  if (auto joined = Visitor(world, job).join(point, deadline); !joined) return joined.error();
  return world;
}

}  // namespace amldist::collective
