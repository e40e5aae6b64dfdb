#include "wireup/acceptor.hpp"

#include <gtest/gtest.h>

#include <memory>

#include "pair.hpp"
#include "wireup/limits.hpp"

namespace amldist::wireup {
namespace {

const Group group = {"init 42.0", 1, 4};

std::string greeting(std::uint64_t number, std::uint64_t process, std::string host = "n", std::string name = group.name,
                     std::uint64_t size = 4) {
  return Greeting{std::move(name), number, size, process, std::move(host), {}}.to_frame().take();
}

/// An accepting side with connections that come to it, at a time that the test sets.
class AcceptingSide : public ::testing::Test {
 protected:
  Result<std::vector<Greeting>> serve() { return acceptor_.serve(no_listener_, now_); }
  /// A new connection with something in it.
  Pair& connect(std::string_view bytes) {
    pairs_.push_back(std::make_unique<Pair>());
    pairs_.back()->send(bytes);
    acceptor_.add(std::move(pairs_.back()->near), now_);
    return *pairs_.back();
  }
  static Frame answer_to(const Pair& pair) {
    FrameReader reader(limits.greeting_bytes);
    return reader.read(pair.far) == FrameReader::State::complete ? reader.take() : Frame();
  }
  static HandshakeKind kind_of(const Pair& pair) { return answer_to(pair).kind<HandshakeKind>(); }

  FileDescriptor no_listener_;
  Acceptor acceptor_{group};
  Clock::time_point now_{};
  std::vector<std::unique_ptr<Pair>> pairs_;
};

TEST_F(AcceptingSide, IsCompleteWhenAllHaveCome) {
  for (std::uint32_t rank = 1; rank < 4; ++rank) {
    EXPECT_FALSE(acceptor_.is_complete());
    EXPECT_EQ(kind_of(connect(greeting(rank, rank))), HandshakeKind::accepted);
  }
  EXPECT_TRUE(acceptor_.is_complete());
  const auto admitted = serve();
  ASSERT_TRUE(admitted);
  EXPECT_EQ(admitted->size(), 3U);
}

TEST_F(AcceptingSide, NamesWhoIsMissing) {
  connect(greeting(2, 1));
  EXPECT_EQ(acceptor_.missing(), (std::vector<std::uint32_t>{1, 3}));
  acceptor_.dismiss(2);
  EXPECT_EQ(acceptor_.missing(), (std::vector<std::uint32_t>{1, 2, 3}));
}

TEST_F(AcceptingSide, SendsAnotherStepsProcessElsewhere) {
  const Pair& pair = connect(greeting(1, 1, "n", "init 43.0"));
  EXPECT_EQ(kind_of(pair), HandshakeKind::elsewhere);
  EXPECT_TRUE(serve());
  EXPECT_EQ(acceptor_.missing().size(), 3U);
}

TEST_F(AcceptingSide, ClosesWhatIsNoGreeting) {
  const std::string whole = greeting(1, 1);
  EXPECT_TRUE(connect("GET / HTTP/1.1\r\nHost: n\r\n\r\n").is_closed());
  EXPECT_TRUE(connect(accepted_frame()).is_closed());
  EXPECT_TRUE(connect(FrameWriter(HandshakeKind::greeting).number(1).take()).is_closed());
  EXPECT_EQ(acceptor_.missing().size(), 3U);
}

TEST_F(AcceptingSide, ReadsNoMoreThanAGreetingFromAStranger) {
  std::string length = FrameWriter(HandshakeKind::greeting).text(std::string(limits.greeting_bytes, 'x')).take();
  EXPECT_TRUE(connect(length.substr(0, frame_head)).is_closed());
}

TEST_F(AcceptingSide, HasABoundedNumberOfStrangers) {
  const std::size_t most = limits.strangers + group.size;
  for (std::size_t i = 0; i < 2 * most; ++i) connect("");
  std::size_t open = 0;
  for (const auto& pair : pairs_) open += pair->is_closed() ? 0 : 1;
  EXPECT_EQ(open, most);
  EXPECT_TRUE(pairs_.front()->is_closed()) << "the oldest leaves first";
  EXPECT_EQ(kind_of(connect(greeting(1, 1))), HandshakeKind::accepted) << "and a peer still gets in";
}

TEST_F(AcceptingSide, GivesAStrangerAShortTime) {
  const Pair& silent = connect("");
  const Pair& slow = connect(greeting(1, 1).substr(0, 10));
  EXPECT_EQ(acceptor_.next_deadline(), now_ + limits.greeting_time);
  now_ += limits.greeting_time - std::chrono::milliseconds(1);
  ASSERT_TRUE(serve());
  EXPECT_FALSE(silent.is_closed() || slow.is_closed());
  now_ += std::chrono::milliseconds(1);
  ASSERT_TRUE(serve());
  EXPECT_TRUE(silent.is_closed() && slow.is_closed());
  EXPECT_EQ(acceptor_.next_deadline(), Clock::time_point::max());
}

TEST_F(AcceptingSide, AGreetingMayComeInPieces) {
  const std::string whole = greeting(3, 1);
  const Pair& pair = connect(whole.substr(0, 10));
  ASSERT_TRUE(serve());
  pair.send(whole.substr(10));
  const auto admitted = serve();
  ASSERT_TRUE(admitted && admitted->size() == 1);
  EXPECT_EQ(admitted->front().number, 3U);
}

TEST_F(AcceptingSide, AProcessThatConnectsAgainGetsTheNewConnection) {
  connect(greeting(1, 7));
  const int first = acceptor_.link(1).get();
  const Pair& again = connect(greeting(1, 7));
  EXPECT_EQ(kind_of(again), HandshakeKind::accepted);
  EXPECT_NE(acceptor_.link(1).get(), first);
  EXPECT_EQ(acceptor_.missing().size(), 2U);
  EXPECT_TRUE(serve());
}

TEST_F(AcceptingSide, RefusesASecondProcessOfOneNumber) {
  connect(greeting(1, 7, "n1"));
  Frame answer = answer_to(connect(greeting(1, 8, "n2")));
  EXPECT_EQ(read_refusal(answer).message, "two processes came as rank 1: one from n1, one from n2");
  const auto served = serve();
  ASSERT_FALSE(served);
  EXPECT_EQ(served.error().code, Errc::mismatch);
}

TEST_F(AcceptingSide, RefusesAProcessOfAnotherSize) {
  connect(greeting(1, 7, "n1", group.name, 8));
  const auto served = serve();
  ASSERT_FALSE(served);
  EXPECT_EQ(served.error().message, "rank 1 (n1) was started as one of 8 processes, rank 0 as one of 4");
}

TEST_F(AcceptingSide, RefusesANumberThatTheGroupHasNot) {
  for (const std::uint64_t number : {std::uint64_t{0}, std::uint64_t{4}, ~std::uint64_t{0}}) {
    Acceptor acceptor(group);
    Pair pair;
    pair.send(greeting(number, 7));
    acceptor.add(std::move(pair.near), now_);
    EXPECT_FALSE(acceptor.serve(no_listener_, now_)) << number;
  }
}

TEST_F(AcceptingSide, HostNamesInReasonsArePrintable) {
  connect(greeting(1, 7, "\x1b]0;title\x07" + std::string(3000, 'x'), group.name, 8));
  const auto served = serve();
  ASSERT_FALSE(served);
  EXPECT_NE(served.error().message.find("(\\x1b]0;title\\x07xxx"), std::string::npos) << served.error().message;
  EXPECT_LT(served.error().message.size(), 400U);
}

TEST_F(AcceptingSide, TellsEveryPeerWhyTheGroupEnds) {
  const Pair& one = connect(greeting(1, 7));
  const Pair& three = connect(greeting(3, 8));
  acceptor_.refuse_all({Errc::timeout, "rank 2 is missing"}, Clock::now());
  for (const Pair* const pair : {&one, &three}) {
    ASSERT_EQ(kind_of(*pair), HandshakeKind::accepted);
    Frame end = answer_to(*pair);
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
}  // namespace amldist::wireup
