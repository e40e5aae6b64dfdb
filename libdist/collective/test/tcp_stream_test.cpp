#include "collective/transport/tcp_stream.hpp"

#include <gtest/gtest.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "ends_in_one_process.hpp"

namespace amldist::collective {
namespace {

constexpr std::uint32_t signature = 7;
constexpr int other_rank = 3;

/// A connection of this process to itself.
void connect_by_tcp(int (&sockets)[2]) {
  sockaddr_in here = {};
  here.sin_family = AF_INET;
  here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof here;
  auto* const address = reinterpret_cast<sockaddr*>(&here);
  const FileDescriptor listener(::socket(AF_INET, SOCK_STREAM, 0));
  sockets[0] = ::socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(::bind(listener.get(), address, length), 0);
  ASSERT_EQ(::getsockname(listener.get(), address, &length), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  ASSERT_EQ(::connect(sockets[0], address, length), 0);
  sockets[1] = ::accept(listener.get(), nullptr, nullptr);
  ASSERT_GE(sockets[1], 0);
}

/// With SOCK_SEQPACKET, one call to receive gets what one call has sent; in TCP, messages that are sent together are
/// copied together.
struct Ends {
  explicit Ends(int kind = SOCK_STREAM, bool has_codes = false, bool over_tcp = false)
      : one(has_codes ? world::message_code_bytes : 0), other(has_codes ? world::message_code_bytes : 0) {
    int sockets[2] = {};
    if (over_tcp) connect_by_tcp(sockets);
    else EXPECT_EQ(::socketpair(AF_UNIX, kind, 0, sockets), 0);
    const auto codes = [&]() -> std::optional<TcpStream::Codes> {
      if (!has_codes) return std::nullopt;
      const world::MessageCodes fresh(world::Integrity::crc, world::Key());
      return TcpStream::Codes{fresh, fresh};
    };
    one.open(FileDescriptor(sockets[0]), codes());
    other.open(FileDescriptor(sockets[1]), codes());
  }
  TcpStream one;
  TcpStream other;
};

class TcpStreamTest : public ::testing::Test {
 protected:
  void add(TcpStream& to, Direction direction, std::vector<std::byte>& data, std::size_t& left) {
    static_cast<void>(to.add({other_rank, data.data(), data.size(), signature}, direction, left));
  }
  [[nodiscard]] std::string move(TcpStream& end, Direction direction) {
    const auto moved = end.move(direction, "rank 0", watchdog);
    return moved ? (*moved ? "moved" : "nothing") : moved.error().message;
  }
  /// Posts a receive and moves what has arrived.
  [[nodiscard]] std::string receive(TcpStream& to, std::vector<std::byte>& data, std::size_t& left) {
    add(to, Direction::receive, data, left);
    return move(to, Direction::receive);
  }
  /// Moves until nothing moves any more; returns what the last attempt said.
  [[nodiscard]] std::string last_of(TcpStream& end, Direction direction) {
    std::string last = "moved";
    while (last == "moved") last = move(end, direction);
    return last;
  }
  WitnessWatchdog watchdog;
};

std::size_t bytes_waiting(const TcpStream& end) {
  std::vector<std::byte> all(1UL << 20);
  const ssize_t there = ::recv(end.socket(), all.data(), all.size(), MSG_PEEK | MSG_DONTWAIT);
  return there > 0 ? static_cast<std::size_t>(there) : 0;
}

using Buffers = std::vector<std::vector<std::byte>>;

TEST_F(TcpStreamTest, ShortMessagesLeaveInOneSystemCall) {
  Ends ends(SOCK_SEQPACKET);
  Buffers given;
  std::size_t left = 0;
  for (unsigned i = 0; i < 64; ++i) given.push_back(pattern(20, i));
  for (auto& each : given) add(ends.one, Direction::send, each, left);
  EXPECT_EQ(left, 64U);
  EXPECT_EQ(move(ends.one, Direction::send), "moved");
  EXPECT_EQ(left, 0U);
  EXPECT_EQ(bytes_waiting(ends.other), 64U * (16 + 20));
}

TEST_F(TcpStreamTest, LongMessagesShareACallUpToItsLimit) {
  Ends ends(SOCK_SEQPACKET);
  TcpStream stream(0, 50000);
  stream.open(FileDescriptor(::dup(ends.one.socket())), std::nullopt);
  std::vector<std::byte> given = pattern(12000, 1);
  std::size_t left = 0;
  for (int i = 0; i < 8; ++i) add(stream, Direction::send, given, left);
  EXPECT_EQ(move(stream, Direction::send), "moved");
  EXPECT_EQ(bytes_waiting(ends.other), 5U * (16 + 12000));  // the fifth reaches 50,000
}

TEST_F(TcpStreamTest, MuchThatGoesBothWaysGoesInTurns) {
  constexpr int mebibyte = 1 << 20;
  std::vector<std::byte> data(3 * mebibyte);
  std::vector<std::byte> got(data.size());
  const auto bytes_in_the_kernel = [&](int receives) {
    Ends ends(SOCK_STREAM, false, true);
    std::size_t left = 0;
    for (int i = 0; i < receives; ++i) add(ends.one, Direction::receive, got, left);
    for (int i = 0; i < 3; ++i) add(ends.one, Direction::send, data, left);
    EXPECT_EQ(move(ends.one, Direction::send), "moved");
    int not_taken = 0;
    EXPECT_EQ(::ioctl(ends.one.socket(), SIOCOUTQ, &not_taken), 0);
    return not_taken;
  };
  EXPECT_LE(bytes_in_the_kernel(3), mebibyte);
  EXPECT_GT(bytes_in_the_kernel(2), mebibyte);  // 6 MiB: they go at once
}

TEST_F(TcpStreamTest, WhatArrivesBehindAShortMessageIsReceivedWithIt) {
  Ends ends;
  Buffers given;
  Buffers got(3, std::vector<std::byte>(100));
  std::size_t sending = 0;
  std::size_t receiving = 0;
  for (unsigned i = 0; i < 3; ++i) given.push_back(pattern(100, i));
  for (auto& each : given) add(ends.one, Direction::send, each, sending);
  EXPECT_EQ(move(ends.one, Direction::send), "moved");
  EXPECT_EQ(receive(ends.other, got[0], receiving), "moved");
  EXPECT_EQ(receiving, 0U);
  EXPECT_EQ(bytes_waiting(ends.other), 0U);
  EXPECT_EQ(got[0], given[0]);
  for (std::size_t i = 1; i < 3; ++i) {
    EXPECT_EQ(receive(ends.other, got[i], receiving), "moved");
    EXPECT_EQ(receiving, 0U);
    EXPECT_EQ(got[i], given[i]);
  }
  EXPECT_EQ(receive(ends.other, got[0], receiving), "nothing");
}

TEST_F(TcpStreamTest, NothingIsReceivedEarlyBehindALongMessage) {
  Ends ends;
  Buffers given = {pattern(20000, 1), pattern(20000, 2)};
  std::vector<std::byte> got(20000);
  std::size_t left = 0;
  for (auto& each : given) add(ends.one, Direction::send, each, left);
  EXPECT_EQ(move(ends.one, Direction::send), "moved");
  EXPECT_EQ(receive(ends.other, got, left), "moved");
  EXPECT_EQ(left, 0U);
  EXPECT_EQ(bytes_waiting(ends.other), 16U + 20000U);
}

TEST_F(TcpStreamTest, AMessageMayBeShorterThanItsBuffer) {
  Ends ends;
  Buffers given = {pattern(10, 1), pattern(0, 2), pattern(300, 3)};
  Buffers got(3, std::vector<std::byte>(300));
  std::size_t left = 0;
  for (auto& each : given) add(ends.one, Direction::send, each, left);
  for (auto& each : got) {
    Message message = {other_rank, each.data(), each.size(), signature};
    message.is_most = true;
    static_cast<void>(ends.other.add(message, Direction::receive, left));
  }
  EXPECT_EQ(move(ends.one, Direction::send), "moved");
  EXPECT_EQ(move(ends.other, Direction::receive), "moved");
  EXPECT_EQ(left, 0U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(std::equal(given[i].begin(), given[i].end(), got[i].begin())) << i;
}

TEST_F(TcpStreamTest, AnotherMessageThanTheExpectedOneIsNamed) {
  const auto error_of = [&](std::size_t bytes, std::uint32_t other_signature) {
    Ends ends;
    Buffers given = {pattern(8, 1), pattern(bytes, 2)};
    Buffers got(2, std::vector<std::byte>(8));
    std::size_t left = 0;
    add(ends.one, Direction::send, given[0], left);
    static_cast<void>(ends.one.add({other_rank, given[1].data(), bytes, other_signature}, Direction::send, left));
    for (auto& each : got) add(ends.other, Direction::receive, each, left);
    EXPECT_EQ(move(ends.one, Direction::send), "moved");
    return move(ends.other, Direction::receive);
  };
  EXPECT_EQ(error_of(8, signature), "moved");
  EXPECT_EQ(error_of(8, signature + 1), "differs 3");
  EXPECT_EQ(error_of(4, signature), "differs 3");
  EXPECT_EQ(error_of(12, signature), "differs 3");
}

TEST_F(TcpStreamTest, AClosedConnectionIsLostOnceAllIsReceived) {
  Ends ends;
  Buffers given = {pattern(8, 1), pattern(8, 2)};
  Buffers got(3, std::vector<std::byte>(8));
  std::size_t left = 0;
  for (auto& each : given) add(ends.one, Direction::send, each, left);
  EXPECT_EQ(move(ends.one, Direction::send), "moved");
  ends.one.open(FileDescriptor(), std::nullopt);  // closes it
  EXPECT_EQ(receive(ends.other, got[0], left), "moved");
  EXPECT_EQ(receive(ends.other, got[1], left), "moved");
  EXPECT_EQ(receive(ends.other, got[2], left), "lost 3: it closed the connection");
  EXPECT_EQ(got[1], given[1]);
}

TEST_F(TcpStreamTest, ABadBufferIsNamedAndThoseBeforeItMove) {
  constexpr std::size_t bytes = 5000;  // short ones are copied
  Ends ends(SOCK_STREAM, false, true);
  auto* const nobodys = static_cast<std::byte*>(::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(nobodys, MAP_FAILED);
  const Message bad = {other_rank, nobodys, bytes, signature};
  Buffers given = {pattern(bytes, 1), pattern(bytes, 2)};
  std::vector<std::byte> got(bytes);
  std::size_t left = 0;
  add(ends.one, Direction::send, given[0], left);
  static_cast<void>(ends.one.add(bad, Direction::send, left));
  const std::string not_sent = last_of(ends.one, Direction::send);
  EXPECT_EQ(not_sent, "rank 0 gave a buffer to send of which 5000 bytes are not its memory (Bad address)");
  EXPECT_EQ(left, 1U);
  ends.one.give_up();
  left = 0;
  for (auto& each : given) add(ends.other, Direction::send, each, left);
  EXPECT_EQ(move(ends.other, Direction::send), "moved");
  add(ends.one, Direction::receive, got, left);
  static_cast<void>(ends.one.add(bad, Direction::receive, left));
  const std::string not_received = last_of(ends.one, Direction::receive);
  EXPECT_EQ(not_received, "rank 0 gave a buffer to receive of which 5000 bytes are not its memory (Bad address)");
  EXPECT_EQ(left, 1U);
  EXPECT_EQ(got, given[0]);
  ::munmap(nobodys, bytes);
}

TEST_F(TcpStreamTest, AChangedMessageIsNoticedByItsCode) {
  Ends ends(SOCK_STREAM, true);
  Buffers given = {pattern(50, 1), pattern(60, 2), pattern(70, 3)};
  Buffers got = {std::vector<std::byte>(50), std::vector<std::byte>(60), std::vector<std::byte>(70)};
  std::size_t left = 0;
  for (auto& each : given) add(ends.one, Direction::send, each, left);
  EXPECT_EQ(move(ends.one, Direction::send), "moved");
  std::vector<std::byte> all(3 * 32 + 180);
  ASSERT_EQ(::recv(ends.other.socket(), all.data(), all.size(), 0), static_cast<ssize_t>(all.size()));
  all[2 * 32 + 50 + 60 + 16 + 5] ^= std::byte{1};  // in the third message's data
  ASSERT_EQ(::send(ends.one.socket(), all.data(), all.size(), 0), static_cast<ssize_t>(all.size()));
  EXPECT_EQ(receive(ends.other, got[0], left), "moved");
  EXPECT_EQ(receive(ends.other, got[1], left), "moved");
  EXPECT_EQ(receive(ends.other, got[2], left), "lost 3: a message from it was changed on the way");
  EXPECT_EQ(got[1], given[1]);
}

/// Messages of all lengths, in sockets that take little at once, whose receives are posted at any time.
TEST_F(TcpStreamTest, MessagesByChanceArriveAsTheyWereSent) {
  constexpr std::size_t many = 400;
  for (unsigned seed = 1; seed <= 6; ++seed) {
    std::mt19937 random(seed);
    Ends ends(SOCK_STREAM, seed % 2 == 0);
    const int room = 4096 << seed;
    ASSERT_EQ(::setsockopt(ends.one.socket(), SOL_SOCKET, SO_SNDBUF, &room, sizeof room), 0);
    Buffers given;
    Buffers got;
    for (unsigned i = 0; i < many; ++i) {
      const std::size_t longest = random() % 8 == 0 ? 40000 : random() % 2 == 0 ? 5000 : 40;
      given.push_back(pattern(random() % longest, i));
      got.emplace_back(given.back().size() + (i % 3 == 0 ? random() % 50 : 0));
    }
    std::size_t left = 0;
    std::size_t sent = 0;
    std::size_t expected = 0;
    for (int idle = 0; (left != 0 || sent + expected < 2 * many) && idle < 1000; ++idle) {
      for (std::size_t n = random() % 40; n != 0 && sent < many; --n)
        add(ends.one, Direction::send, given[sent++], left);
      for (std::size_t n = random() % 40; n != 0 && expected < many; --n) {
        auto& room_for = got[expected];
        Message message = {other_rank, room_for.data(), room_for.size(), signature};
        message.is_most = expected++ % 3 == 0;
        static_cast<void>(ends.other.add(message, Direction::receive, left));
      }
      for (auto [end, direction] : {std::pair{&ends.one, Direction::send}, {&ends.other, Direction::receive}}) {
        const std::string moved = move(*end, direction);
        ASSERT_TRUE(moved == "moved" || moved == "nothing") << moved;
        if (moved == "moved") idle = 0;
      }
    }
    EXPECT_EQ(left, 0U) << seed;
    for (std::size_t i = 0; i < many; ++i) got[i].resize(given[i].size());
    EXPECT_TRUE(got == given) << seed;
  }
}

}  // namespace
}  // namespace amldist::collective
