// What a stranger can send to the accepting side of a wire-up, and what an impostor can answer to a process that joins.
//
// Input: a byte that chooses the side. Accepting: pieces of a connection's bytes (a byte for the connection, one for
// the length, the bytes themselves). Joining a world, or a check: all that the impostor sends before it closes the
// connection.
#include <sys/socket.h>

#include <array>

#include "collective/bootstrap/rank_table.hpp"
#include "fabric/node_exchange.hpp"
#include "fuzz.hpp"
#include "wireup/acceptor.hpp"
#include "wireup/joiner.hpp"
#include "wireup/limits.hpp"

namespace amldist::fuzz {
namespace {

using namespace wireup;

constexpr std::uint32_t size = 4;
constexpr std::size_t most_bytes = std::size_t{4} << 20;

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
  FileDescriptor stranger;
  FileDescriptor tested;
};

void check_greeting(const Greeting& greeting) {
  require(greeting.number > 0 && greeting.number < size && greeting.group == "42.0", "who is let in is of the group");
  if (!greeting.host.empty()) require_sentence(greeting.host);
}

bool accept(Input input) {
  const FileDescriptor no_listener;
  Acceptor acceptor({"42.0", 1, size});
  std::array<Connection, 8> connections;
  Clock::time_point now{};
  while (!input.ended()) {
    Connection& connection = connections[input.byte() % connections.size()];
    std::string piece;
    for (std::size_t left = input.byte(); left > 0 && !input.ended(); --left) {
      piece += static_cast<char>(input.byte());
    }
    connection.send(piece);
    if (connection.tested) acceptor.add(std::move(connection.tested), now);
    auto admitted = acceptor.serve(no_listener, now += std::chrono::milliseconds(10));
    if (!admitted) {
      require_sentence(admitted.error().message);
      acceptor.refuse_all(admitted.error(), Clock::now());
      return true;
    }
    for (const Greeting& each : *admitted) check_greeting(each);
    require(acceptor.is_complete() == acceptor.missing().empty(), "either all are there or some are missing");
  }
  now += limits.greeting_time;
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

bool join_world(std::string_view bytes) {
  const FileDescriptor link = impostor(bytes);
  const auto deadline = Clock::now() + std::chrono::seconds(5);
  const auto accepted = introduce(link, Greeting{"42.0", 1, size, 1, "n", {}}.to_frame().take(), deadline);
  if (!accepted) require_sentence(accepted.error().message);
  if (!accepted || !*accepted) return true;
  auto frame = read_frame(link, limits.frame_bytes, deadline);
  if (!frame) return true;
  if (frame->kind<HandshakeKind>() == HandshakeKind::refused) require_sentence(read_refusal(*frame).message);
  const auto table = collective::RankTable::read(frame->text(), size, {});
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
      require(node < size && text.size() <= limits.text_bytes + 64, "a text of a node, and not too long");
    }
  }
  return true;
}

}  // namespace

const std::string_view separator = "";

void try_input(std::string_view input) {
  Input rest(input);
  switch (rest.byte() % 3) {
    case 0:
      within(most_bytes, [&] { return accept(rest); });
      return;
    case 1:
      within(most_bytes, [&] { return join_world(rest.rest()); });
      return;
    default:
      within(most_bytes, [&] { return join_check(rest.rest()); });
  }
}

}  // namespace amldist::fuzz
