#include "world/wireup/acceptor.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>

#include "pair.hpp"
#include "world/wireup/limits.hpp"

namespace amldist::world {
namespace {

const Group group = {"init 42.0", 1, 4};

std::string join_request(std::uint64_t number, std::uint64_t process, std::string host = "n",
                         std::string name = group.name, std::uint64_t size = 4) {
  return JoinRequest{std::move(name), number, size, process, std::move(host), {}}.to_frame().take();
}

const Credentials step_secret = secret_of("step 42.0");

/// An accepting side with connections that come to it, at a time that the test sets.
class AcceptingSide : public ::testing::Test {
 protected:
  /// Who was let in since the last call, or why the group ends.
  Result<std::vector<JoinRequest>> serve() {
    advance();
    if (error_) return *error_;
    return std::exchange(admitted_, {});
  }
  void advance() {
    auto served = acceptor_.serve(no_listener_, now_);
    if (!served) error_ = served.error();
    else std::ranges::move(*served, std::back_inserter(admitted_));
  }
  /// A new connection with something in it.
  Pair& connect(std::string_view bytes) {
    pairs_.push_back(std::make_unique<Pair>());
    pairs_.back()->send(bytes);
    acceptor_.add(std::move(pairs_.back()->near), now_);
    return *pairs_.back();
  }
  /// A peer that proves its secret and introduces itself.
  Pair& join(const std::string& join_request, const Credentials& credentials = step_secret,
             const std::string& name = group.name) {
    JoinerHandshake handshake(GroupKey(credentials, name), join_request);
    Pair& pair = connect(handshake.hello());
    const Frame answer = pair.receive();
    if (const auto proof = handshake.take(answer, {})) pair.send(*proof);
    else pair.put_back(answer);
    advance();
    return pair;
  }
  static HandshakeKind kind_of(const Pair& pair) { return pair.receive().kind<HandshakeKind>(); }

  FileDescriptor no_listener_;
  Acceptor acceptor_{group, step_secret};
  Clock::time_point now_{};
  std::vector<std::unique_ptr<Pair>> pairs_;
  std::vector<JoinRequest> admitted_;
  std::optional<Error> error_;
};

TEST_F(AcceptingSide, IsCompleteWhenAllHaveCome) {
  for (std::uint32_t rank = 1; rank < 4; ++rank) {
    EXPECT_FALSE(acceptor_.is_complete());
    EXPECT_EQ(kind_of(join(join_request(rank, rank))), HandshakeKind::accepted);
  }
  EXPECT_TRUE(acceptor_.is_complete());
  const auto admitted = serve();
  ASSERT_TRUE(admitted);
  EXPECT_EQ(admitted->size(), 3U);
}

TEST_F(AcceptingSide, NamesWhoIsMissing) {
  join(join_request(2, 1));
  EXPECT_EQ(acceptor_.missing(), (std::vector<std::uint32_t>{1, 3}));
  acceptor_.dismiss(2);
  EXPECT_EQ(acceptor_.missing(), (std::vector<std::uint32_t>{1, 2, 3}));
}

TEST_F(AcceptingSide, SendsAnotherStepsProcessElsewhere) {
  const Pair& pair = join(join_request(1, 1, "n", "init 43.0"), step_secret, "init 43.0");
  EXPECT_EQ(kind_of(pair), HandshakeKind::elsewhere);
  EXPECT_TRUE(serve());
  EXPECT_EQ(acceptor_.missing().size(), 3U);
}

TEST_F(AcceptingSide, ClosesWhatIsNoHello) {
  EXPECT_TRUE(connect("GET / HTTP/1.1\r\nHost: n\r\n\r\n").is_closed());
  EXPECT_TRUE(connect(accepted_frame()).is_closed());
  EXPECT_TRUE(connect(join_request(1, 1)).is_closed()) << "a join request without a proof";
  EXPECT_TRUE(connect(FrameWriter(HandshakeKind::hello).number(1).take()).is_closed());
  EXPECT_EQ(acceptor_.missing().size(), 3U);
}

TEST_F(AcceptingSide, ReadsNoMoreThanAHelloFromAStranger) {
  const std::string length = FrameWriter(HandshakeKind::hello).text(std::string(limits.proof_bytes, 'x')).take();
  EXPECT_TRUE(connect(length.substr(0, frame_head)).is_closed());
}

TEST_F(AcceptingSide, HasABoundedNumberOfStrangers) {
  const std::size_t most = limits.strangers + group.size;
  for (std::size_t i = 0; i < 2 * most; ++i) connect("");
  std::size_t open = 0;
  for (const auto& pair : pairs_) open += pair->is_closed() ? 0 : 1;
  EXPECT_EQ(open, most);
  EXPECT_TRUE(pairs_.front()->is_closed()) << "the oldest leaves first";
  EXPECT_EQ(kind_of(join(join_request(1, 1))), HandshakeKind::accepted) << "and a peer still gets in";
}

TEST_F(AcceptingSide, GivesAStrangerAShortTime) {
  const JoinerHandshake handshake(GroupKey(step_secret, group.name), join_request(1, 1));
  const Pair& silent = connect("");
  const Pair& slow = connect(handshake.hello().substr(0, 10));
  const Pair& unproven = connect(handshake.hello());
  EXPECT_EQ(unproven.receive().kind<HandshakeKind>(), HandshakeKind::challenge);
  EXPECT_EQ(acceptor_.next_deadline(), now_ + limits.proof_time);
  now_ += limits.proof_time - std::chrono::milliseconds(1);
  ASSERT_TRUE(serve());
  EXPECT_FALSE(silent.is_closed() || slow.is_closed() || unproven.is_closed());
  now_ += std::chrono::milliseconds(1);
  ASSERT_TRUE(serve());
  EXPECT_TRUE(silent.is_closed() && slow.is_closed() && unproven.is_closed());
  EXPECT_EQ(acceptor_.next_deadline(), Clock::time_point::max());
}

TEST_F(AcceptingSide, EverythingMayComeInPieces) {
  JoinerHandshake handshake(GroupKey(step_secret, group.name), join_request(3, 1));
  const Pair& pair = connect("");
  const auto trickle = [&](const std::string& bytes) {
    for (const char byte : bytes) {
      pair.send({&byte, 1});
      advance();
    }
  };
  trickle(handshake.hello());
  const auto proof = handshake.take(pair.receive(), {});
  ASSERT_TRUE(proof);
  trickle(*proof);
  const auto admitted = serve();
  ASSERT_TRUE(admitted && admitted->size() == 1);
  EXPECT_EQ(admitted->front().number, 3U);
}

TEST_F(AcceptingSide, AStrangerCannotEndTheGroup) {
  for (const Credentials& other : {Credentials{}, secret_of("step 43.0")}) {
    EXPECT_EQ(kind_of(join(join_request(9, 7, "n1", group.name, 8), other)), HandshakeKind::elsewhere);
  }
  EXPECT_TRUE(serve());
  EXPECT_EQ(acceptor_.missing().size(), 3U);
}

TEST_F(AcceptingSide, APeerThatHasProvenItselfIsNeverClosedForAStranger) {
  JoinerHandshake handshake(GroupKey(step_secret, group.name), join_request(1, 1));
  const Pair& peer = connect(handshake.hello());
  const std::string proof = *handshake.take(peer.receive(), {});
  peer.send(proof.substr(0, proof.size() - 1));
  advance();
  for (std::size_t i = 0; i < 10'000; ++i) {
    connect("");
    pairs_.pop_back();
  }
  EXPECT_FALSE(peer.is_closed());
  peer.send(proof.substr(proof.size() - 1));
  EXPECT_EQ(serve()->size(), 1U);
}

TEST_F(AcceptingSide, StrangersThatSayNothingAreClosedFirst) {
  JoinerHandshake handshake(GroupKey(step_secret, group.name), join_request(1, 1));
  const Pair& peer = connect(handshake.hello());
  for (std::size_t i = 0; i < 10'000; ++i) {
    connect("");
    pairs_.pop_back();
  }
  ASSERT_FALSE(peer.is_closed());
  peer.send(*handshake.take(peer.receive(), {}));
  EXPECT_EQ(serve()->size(), 1U);
}

TEST_F(AcceptingSide, AProcessThatConnectsAgainGetsTheNewConnection) {
  join(join_request(1, 7));
  const int first = acceptor_.link(1).get();
  const Pair& again = join(join_request(1, 7));
  EXPECT_EQ(kind_of(again), HandshakeKind::accepted);
  EXPECT_NE(acceptor_.link(1).get(), first);
  EXPECT_EQ(acceptor_.missing().size(), 2U);
  EXPECT_TRUE(serve());
}

TEST_F(AcceptingSide, RefusesASecondProcessOfOneNumber) {
  join(join_request(1, 7, "n1"));
  Frame answer = join(join_request(1, 8, "n2")).receive();
  EXPECT_EQ(read_refusal(answer).message, "two processes came as rank 1: one from n1, one from n2");
  const auto served = serve();
  ASSERT_FALSE(served);
  EXPECT_EQ(served.error().code, Errc::mismatch);
}

TEST_F(AcceptingSide, RefusesAProcessOfAnotherSize) {
  join(join_request(1, 7, "n1", group.name, 8));
  const auto served = serve();
  ASSERT_FALSE(served);
  EXPECT_EQ(served.error().message, "rank 1 (n1) was started as one of 8 processes, rank 0 as one of 4");
}

TEST_F(AcceptingSide, RefusesANumberThatTheGroupHasNot) {
  for (const std::uint64_t number : {std::uint64_t{0}, std::uint64_t{4}, ~std::uint64_t{0}}) {
    error_.reset();
    acceptor_ = Acceptor(group, step_secret);
    join(join_request(number, 7));
    EXPECT_FALSE(serve()) << number;
  }
}

TEST_F(AcceptingSide, HostNamesInReasonsArePrintable) {
  join(join_request(1, 7, "\x1b]0;title\x07" + std::string(3000, 'x'), group.name, 8));
  const auto served = serve();
  ASSERT_FALSE(served);
  EXPECT_NE(served.error().message.find("(\\x1b]0;title\\x07xxx"), std::string::npos) << served.error().message;
  EXPECT_LT(served.error().message.size(), 400U);
}

TEST_F(AcceptingSide, TellsEveryPeerWhyTheGroupEnds) {
  const Pair& one = join(join_request(1, 7));
  const Pair& three = join(join_request(3, 8));
  acceptor_.refuse_all({Errc::timeout, "rank 2 is missing"}, Clock::now());
  for (const Pair* const pair : {&one, &three}) {
    ASSERT_EQ(kind_of(*pair), HandshakeKind::accepted);
    Frame end = pair->receive();
    ASSERT_EQ(end.kind<HandshakeKind>(), HandshakeKind::refused);
    const Error error = read_refusal(end);
    EXPECT_EQ(error.code, Errc::timeout);
    EXPECT_EQ(error.message, "rank 2 is missing");
  }
}

TEST(ListNumbers, EndsWithHowManyMore) {
  EXPECT_EQ(list_numbers({7}), "7");
  EXPECT_EQ(list_numbers({1, 5}), "1, 5");
  EXPECT_EQ(list_numbers(std::vector<std::uint32_t>(17, 9)),
            "9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9 and 1 other");
}

}  // namespace
}  // namespace amldist::world
