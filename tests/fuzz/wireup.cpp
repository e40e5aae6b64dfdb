// What a stranger can send to the accepting side of a wire-up, and what an impostor can answer to a process that joins.
//
// Input: a byte that chooses the side. Accepting: pieces of a connection's bytes (a byte for the connection, one for
// the length, the bytes themselves); one half of the connections are strangers', the others' owners have proven the
// secret and send any join request. Joining: all that an impostor sends before it closes the connection. Joining a
// world, or a check: all that a host sends that has proven the secret.
#include <sys/socket.h>

#include <array>

#include "fabric/between_nodes/node_exchange.hpp"
#include "fuzz.hpp"
#include "world/bootstrap/rank_table.hpp"
#include "world/wireup/acceptor.hpp"
#include "world/wireup/joiner.hpp"
#include "world/wireup/limits.hpp"

namespace amldist::fuzz::wireup {
namespace {

using namespace world;

constexpr std::uint32_t size = 4;
constexpr std::size_t most_bytes = std::size_t{4} << 20;

const world::Credentials secret = {world::Key::from_secret("secret of the step"), world::Trust::authenticated};

/// Two connected sockets: the stranger's, and the one that is under test.
struct Connection {
  Connection() {
    std::array<int, 2> both{};
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, both.data()) == 0, "a socket pair");
    stranger = FileDescriptor(both[0]);
    tested = FileDescriptor(both[1]);
  }
  void send(std::string_view bytes) const {
    static_cast<void>(::send(stranger.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
  }
  /// One frame of the tested side's; an empty one where none came.
  [[nodiscard]] world::Frame receive() const {
    world::FrameReader reader(world::limits.join_request_bytes);
    return reader.read(stranger) == world::FrameReader::State::complete ? reader.take() : world::Frame();
  }
  FileDescriptor stranger;
  FileDescriptor tested;
};

void check_join_request(const world::JoinRequest& join_request) {
  require(join_request.number > 0 && join_request.number < size && join_request.group == "42.0",
          "who is let in is of the group");
  if (!join_request.host.empty()) require_sentence(join_request.host);
}

/// Proves the secret and sends a join request: the pieces that the input gives.
void join_with(world::Acceptor& acceptor, Connection& connection, const std::string& content, Clock::time_point now) {
  std::string join_request = std::string(world::frame_head, '\0') + content;
  for (std::size_t i = 0; i < world::frame_head; ++i)
    join_request[i] = static_cast<char>(content.size() >> (8 * i) & 0xff);
  world::JoinerHandshake handshake(world::GroupKey(secret, "42.0"), join_request);
  connection.send(handshake.hello());
  acceptor.add(std::move(connection.tested), now);
  const auto proof = handshake.take(connection.receive(), {});
  require(proof.has_value(), "the accepting side proves the secret");
  connection.send(*proof);
}

bool accept(Input input) {
  const FileDescriptor no_listener;
  world::Acceptor acceptor({"42.0", 1, size}, secret);
  std::array<Connection, 8> connections;
  Clock::time_point now{};
  bool has_peers = false;
  while (!input.ended()) {
    const std::size_t index = input.byte() % connections.size();
    Connection& connection = connections[index];
    std::string piece;
    for (std::size_t left = input.byte(); left > 0 && !input.ended(); --left) {
      piece += static_cast<char>(input.byte());
    }
    if (connection.tested && index % 2 == 1 && !piece.empty()) {
      join_with(acceptor, connection, piece, now);
      has_peers = true;
    } else {
      connection.send(piece);
      if (connection.tested) acceptor.add(std::move(connection.tested), now);
    }
    auto admitted = acceptor.serve(no_listener, now += std::chrono::milliseconds(10));
    require(has_peers || (admitted.ok() && admitted->empty()), "strangers alone neither come in nor end the group");
    if (!admitted) {
      require_sentence(admitted.error().message);
      acceptor.refuse_all(admitted.error(), Clock::now());
      return true;
    }
    for (const world::JoinRequest& each : *admitted) check_join_request(each);
    require(acceptor.is_complete() == acceptor.missing().empty(), "either all are there or some are missing");
  }
  now += world::limits.join_request_time;
  static_cast<void>(acceptor.serve(no_listener, now));
  require(acceptor.next_deadline() == Clock::time_point::max(), "no stranger stays longer than it may");
  return true;
}

/// All that an impostor sends; then it is gone.
FileDescriptor impostor(std::string_view bytes) {
  Connection connection;
  connection.send(bytes);
  static_cast<void>(::shutdown(connection.stranger.get(), SHUT_WR));
  static const std::size_t kept = 4;  // the other ends stay open: what is tested can write
  static std::array<FileDescriptor, kept> ends;
  static std::size_t next = 0;
  ends[next++ % kept] = std::move(connection.stranger);
  return std::move(connection.tested);
}

bool meet_impostor(std::string_view bytes) {
  const FileDescriptor link = impostor(bytes);
  const std::string join_request = world::JoinRequest{"42.0", 1, size, 1, "n", {}}.to_frame().take();
  const auto accepted =
      introduce(link, join_request, world::GroupKey(secret, "42.0"), Clock::now() + std::chrono::seconds(5));
  require(accepted.ok() && !*accepted, "an impostor is passed by");
  return true;
}

/// What introduce() and the member table make of a host's frames, behind its proof.
bool join_world(std::string_view bytes) {
  const FileDescriptor link = impostor(bytes);
  const auto deadline = Clock::now() + std::chrono::seconds(5);
  auto answer = world::read_frame(link, world::limits.join_request_bytes, deadline);
  if (!answer) return true;
  if (answer->kind<world::HandshakeKind>() == world::HandshakeKind::refused)
    require_sentence(read_refusal(*answer).message);
  if (!is_acceptance(*answer)) return true;
  auto frame = world::read_frame(link, world::limits.frame_bytes, deadline);
  if (!frame) return true;
  if (frame->kind<world::HandshakeKind>() == world::HandshakeKind::refused)
    require_sentence(read_refusal(*frame).message);
  const auto table = world::RankTable::read(frame->text(), size, {});
  if (!table) return true;
  require(table->size() == size, "a table has a place for every rank");
  for (std::uint32_t rank = 0; rank < size; ++rank) {
    require(table->leader_of(table->vertex_of(rank)) < size, "a leader is a rank");
    if (!table->host_of(rank).empty()) require_sentence(table->host_of(rank));
  }
  return true;
}

bool join_check(std::string_view bytes) {
  fabric::NodeExchange exchange(impostor(bytes), size, std::chrono::seconds(5));
  for (int i = 0; i < 20; ++i) {  // no more than its socket takes in
    const auto texts = exchange.round({i == 0, {}}, "text");
    if (!texts) {
      require_sentence(texts.error().message);
      return true;
    }
    for (const auto& [node, text] : *texts) {
      require(node < size && text.size() <= world::limits.text_bytes + 64, "a text of a node, and not too long");
    }
  }
  return true;
}

}  // namespace

const std::string_view separator = "";

void try_input(std::string_view input) {
  Input rest(input);
  switch (rest.byte() % 4) {
    case 0:
      within(most_bytes, [&] { return accept(rest); });
      return;
    case 1:
      within(most_bytes, [&] { return meet_impostor(rest.rest()); });
      return;
    case 2:
      within(most_bytes, [&] { return join_world(rest.rest()); });
      return;
    default:
      within(most_bytes, [&] { return join_check(rest.rest()); });
  }
}

}  // namespace amldist::fuzz::wireup
