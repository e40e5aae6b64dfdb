// What of all that reaches srun's port, and a node's, is believed.
#include "step/server/inbox.hpp"

#include <poll.h>

#include <algorithm>
#include <thread>

#include "step/messages/control_message.hpp"
#include "step/messages/srun_link.hpp"
#include "support.hpp"

namespace amldist::step::inbox_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Token token{0x00c0ffee00c0ffee, 0x5ca1ab1e5ca1ab1e};
constexpr std::uint64_t second_ns = 1'000'000'000;

std::string message(std::string_view text = "61200") { return to_datagram(Subject::waits, text, token); }

std::string sealed(std::uint64_t time, std::uint64_t sender = 7, std::string_view text = "61200") {
  return seal(token, Direction::to_srun, {sender, time}, message(text));
}

Clock::time_point at(std::uint64_t time_ns) {
  return Clock::time_point(std::chrono::nanoseconds(static_cast<std::int64_t>(time_ns)));
}

TEST(Seal, IsReadBackAndShowsNothingOfTheToken) {
  const std::string datagram = sealed(0x123);
  EXPECT_EQ(datagram.substr(0, 45), "aml-dist;2;0000000000000007;0000000000000123;");
  EXPECT_EQ(datagram.substr(61), ";waits;61200");
  EXPECT_EQ(datagram.size(), message().size() + seal_bytes);
  EXPECT_EQ(datagram.find("c0ffee"), std::string::npos);
  EXPECT_EQ(datagram.find("5ca1ab1e"), std::string::npos);
  const auto read = unseal(token, Direction::to_srun, datagram);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->stamp, (Stamp{7, 0x123}));
  EXPECT_EQ(read->message, message());
}

TEST(Seal, AnyOtherBitBreaksIt) {
  const std::string good = sealed(0x123);
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string forged = good;
    forged[bit / 8] = static_cast<char>(forged[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(unseal(token, Direction::to_srun, forged)) << bit;
  }
  for (std::size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(unseal(token, Direction::to_srun, good.substr(0, length))) << length;
  EXPECT_FALSE(unseal(token, Direction::to_srun, good + "0"));
  EXPECT_FALSE(unseal(token, Direction::to_node, good)) << "sent back to a node as an answer";
  EXPECT_FALSE(unseal({token.mark, token.rest + 1}, Direction::to_srun, good)) << "another step's";
  EXPECT_FALSE(unseal({token.mark + 1, token.rest}, Direction::to_srun, good));
  EXPECT_FALSE(unseal(token, Direction::to_srun, message())) << "what no process seals";
}

TEST(Inbox, CountsWhatIsForged) {
  Inbox inbox(token, 2);
  for (const std::string& forged : {std::string(), std::string("x"), std::string(60'000, 'x'), message(),
                                    seal({1, 2}, Direction::to_srun, {7, 1}, to_datagram(Subject::waits, "1", 1))})
    EXPECT_FALSE(inbox.take(forged, at(0)));
  EXPECT_TRUE(inbox.take(sealed(1), at(1)));
  EXPECT_EQ(inbox.dropped("port 9"),
            "5 datagrams that came to port 9 were dropped: 5 without the step's code, 0 repeated, 0 too late");
  EXPECT_EQ(Inbox(token, 2).dropped("port 9"), "");
}

TEST(Inbox, TakesEachMessageOnce) {
  Inbox inbox(token, 2);
  for (const std::uint64_t time : {5U, 3U, 9U, 4U})
    EXPECT_TRUE(inbox.take(sealed(time), at(9))) << "overtaken on the way";
  for (const std::uint64_t time : {5U, 3U, 9U, 4U}) EXPECT_FALSE(inbox.take(sealed(time), at(9))) << time;
  EXPECT_TRUE(inbox.take(sealed(5, 8), at(9))) << "another sender's";
  for (std::uint64_t time = 10; time < 10'000; ++time) EXPECT_TRUE(inbox.take(sealed(time), at(time)));
  for (std::uint64_t time = 1; time < 10'000; ++time) EXPECT_FALSE(inbox.take(sealed(time), at(10'000))) << time;
}

TEST(Inbox, KnowsWhatWasHeldBackFromTheSendersOwnClock) {
  constexpr std::uint64_t other_clock = 1'000'000 * second_ns;  // of a machine that has been up for longer
  Inbox inbox(token, 2);
  EXPECT_FALSE(inbox.take(sealed(other_clock), at(second_ns))->is_late);
  EXPECT_FALSE(inbox.take(sealed(other_clock + second_ns), at(11 * second_ns))->is_late) << "nine seconds";
  EXPECT_TRUE(inbox.take(sealed(other_clock + 2 * second_ns), at(14 * second_ns))->is_late) << "eleven seconds";
  EXPECT_FALSE(inbox.take(sealed(other_clock + 14 * second_ns), at(15 * second_ns))->is_late);
  inbox.count_late();
  EXPECT_EQ(inbox.dropped("port 9"),
            "1 datagrams that came to port 9 were dropped: 0 without the step's code, 0 repeated, 1 too late");
}

TEST(Inbox, ClocksMayDrift) {
  Inbox inbox(token, 2);
  constexpr std::uint64_t minute = 60 * second_ns;
  for (std::uint64_t i = 1; i < 60 * 24 * 30; ++i)  // a month; the sender's clock loses 200 parts in a million
    ASSERT_FALSE(inbox.take(sealed(i * (minute - minute / 5000)), at(i * minute))->is_late) << i;
}

TEST(Inbox, HasALimitOfSenders) {
  Inbox inbox(token, 2);
  std::size_t taken = 0;
  for (std::uint64_t sender = 1; sender < 1000; ++sender) taken += inbox.take(sealed(1, sender), at(1)) ? 1 : 0;
  EXPECT_EQ(taken, 2 * Inbox::senders_of_node);
  EXPECT_TRUE(inbox.take(sealed(2, 1), at(2))) << "who was there before";
}

// ---- a node's side: an srun whose answers go through an attacker's hands ----

/// srun's socket.
struct Srun {
  DatagramSocket socket = DatagramSocket::for_all();
  SrunLink link;
  DatagramPlace node;

  Srun() {
    EXPECT_TRUE(socket.bind(0));
    link = {*IpAddress::parse("127.0.0.1"), {socket.port(), token}};
  }

  std::string receive() {
    std::string buffer(1024, '\0');
    buffer.resize(socket.receive(buffer, node).value_or(0));
    return buffer;
  }

  void send(std::string_view datagram) const { EXPECT_TRUE(socket.send(datagram, node)); }

  [[nodiscard]] std::string answer(std::string_view question, MessageType type) const {
    const auto read = unseal(token, Direction::to_srun, question);
    return read ? seal(token, Direction::to_node, read->stamp, to_datagram(type, token)) : "";
  }
};

constexpr milliseconds moment{50};

TEST(NodeSocket, BelievesOnlyAnswersToItsOwnQuestions) {
  Srun srun;
  NodeSocket node(srun.link);
  NodeSocket other(srun.link);
  node.send(message());
  const std::string question = srun.receive();
  const std::string good = srun.answer(question, MessageType::heard);
  srun.send("x");
  srun.send(question);
  srun.send(to_datagram(MessageType::heard, token));
  srun.send(seal(token, Direction::to_node, {srun.link.sender, 1}, to_datagram(MessageType::heard, token)));
  EXPECT_EQ(node.answer(moment), "");
  srun.send("x");
  srun.send(good);
  EXPECT_EQ(node.answer(moment), to_datagram(MessageType::heard, token));
  other.send(message());
  static_cast<void>(srun.receive());
  srun.send(good);
  EXPECT_EQ(other.answer(moment), "") << "an answer to another question of the same node";
}

TEST(NodeSocket, AnAnswerToAnEarlierQuestionIsForgotten) {
  Srun srun;
  NodeSocket node(srun.link);
  node.send(message());
  const std::string first = srun.answer(srun.receive(), MessageType::end);
  for (int i = 0; i < 16; ++i) {
    node.send(message());
    static_cast<void>(srun.receive());
  }
  srun.send(first);
  EXPECT_EQ(node.answer(moment), "");
}

TEST(NodeSocket, AFloodOfStrangersDoesNotHideTheAnswer) {
  Srun srun;
  NodeSocket node(srun.link);
  node.send(message());
  const std::string good = srun.answer(srun.receive(), MessageType::heard);
  for (int i = 0; i < 100; ++i) srun.send(std::string(300, 'x'));
  srun.send(good);
  EXPECT_EQ(node.answer(seconds(5)), to_datagram(MessageType::heard, token));
}

TEST(Tell, SendsAgainUntilSrunConfirmsAndGivesUpInTime) {
  Srun srun;
  std::thread answers([&srun] {
    for (int lost = 0; lost < 3; ++lost) {
      pollfd came{srun.socket.descriptor(), POLLIN, 0};
      static_cast<void>(::poll(&came, 1, 5000));
      static_cast<void>(srun.receive());
    }
    pollfd came{srun.socket.descriptor(), POLLIN, 0};
    static_cast<void>(::poll(&came, 1, 5000));
    srun.send(srun.answer(srun.receive(), MessageType::heard));
  });
  EXPECT_TRUE(tell(srun.link, message()));
  answers.join();
  const auto began = Clock::now();
  EXPECT_FALSE(tell(srun.link, message())) << "nobody answers";
  EXPECT_GE(Clock::now() - began, patience_with_srun - moment);
  EXPECT_LT(Clock::now() - began, 2 * patience_with_srun);
}

/// srun was stopped, or asks slurmctld.
TEST(NodeSocket, ANodeThatSrunHasHeardWaitsLongerForItsNextAnswer) {
  Srun srun;
  std::thread answers([&] {
    const auto next = [&] {
      pollfd came{srun.socket.descriptor(), POLLIN, 0};
      static_cast<void>(::poll(&came, 1, 5000));
      return srun.receive();
    };
    srun.send(srun.answer(next(), MessageType::not_yet));
    std::this_thread::sleep_for(10 * moment);
    std::string last = next();
    for (std::string each = srun.receive(); !each.empty(); each = srun.receive()) last = each;
    srun.send(srun.answer(last, MessageType::start));
  });
  EXPECT_EQ(report_node(srun.link, "node1", 4 * moment, true), MessageType::start);
  answers.join();
  EXPECT_EQ(report_node(srun.link, "node1", moment, true), std::nullopt) << "nobody answers";
}

}  // namespace
}  // namespace amldist::step::inbox_test
