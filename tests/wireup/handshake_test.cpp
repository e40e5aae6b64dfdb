// The mutual proof, and what attackers may try on it. README.md of libdist/wireup has the protocol.
#include "wireup/handshake.hpp"

#include <gtest/gtest.h>

#include "pair.hpp"

namespace amldist::wireup::handshake_test {
namespace {

using State = HostHandshake::State;

const GroupKey group(secret_of("step 42.0"), "world");
const Ends ends = {"joiner's address", "host's address"};
const std::string greeting = FrameWriter(HandshakeKind::greeting).text("rank 1").take();

/// A host that has answered a hello.
struct Challenged {
  explicit Challenged(const JoinerHandshake& joiner, const GroupKey& key = group, const Ends& seen = ends)
      : challenge(host.take(key, content_of(joiner.hello()), seen)) {}
  HostHandshake host;
  std::string challenge;
};

/// The proof of a joiner, without the greeting behind it.
std::string proof_alone(const std::string& proof_and_greeting) {
  return proof_and_greeting.substr(0, proof_and_greeting.size() - greeting.size());
}

TEST(Handshake, ProvesBothSidesAndBringsTheGreeting) {
  JoinerHandshake joiner(group, greeting);
  Challenged host(joiner);
  const auto proof = joiner.take(content_of(host.challenge), ends);
  ASSERT_TRUE(proof);
  EXPECT_EQ(host.host.take(group, content_of(proof_alone(*proof)), ends), "");
  EXPECT_TRUE(host.host.has_proven());
  EXPECT_EQ(host.host.take(group, content_of(greeting), ends), "");
  ASSERT_EQ(host.host.state(), State::complete);
  EXPECT_EQ(host.host.greeting().text(), "rank 1");
}

TEST(Handshake, WorksWithoutASecretToo) {
  const GroupKey open({}, "world");
  JoinerHandshake joiner(open, greeting);
  Challenged host(joiner, open);
  const Ends translated = {"another address", "yet another"};  // nothing is protected: nothing is to break either
  const auto proof = joiner.take(content_of(host.challenge), translated);
  ASSERT_TRUE(proof);
  static_cast<void>(host.host.take(open, content_of(proof_alone(*proof)), ends));
  EXPECT_TRUE(host.host.has_proven());
}

TEST(Handshake, FitsIntoWhatAStrangerMaySend) {
  JoinerHandshake joiner(group, greeting);
  const Challenged host(joiner);
  EXPECT_LE(joiner.hello().size(), limits.proof_bytes);
  EXPECT_LE(host.challenge.size(), limits.proof_bytes);
}

TEST(Handshake, AnotherSecretOrWorldIsElsewhere) {
  for (const GroupKey& other : {GroupKey(secret_of("step 43.0"), "world"), GroupKey(secret_of("step 42.0"), "another"),
                                GroupKey({}, "world")}) {
    HostHandshake host;
    EXPECT_EQ(host.take(group, content_of(JoinerHandshake(other, greeting).hello()), ends), "");
    EXPECT_EQ(host.state(), State::elsewhere);
  }
}

TEST(Handshake, AHostOfAnotherSecretOrWorldIsNone) {
  JoinerHandshake joiner(group, greeting);
  for (const GroupKey& other : {GroupKey(secret_of("step 43.0"), "world"), GroupKey(secret_of("step 42.0"), "another"),
                                GroupKey({}, "world")}) {
    const JoinerHandshake theirs(other, greeting);
    const Challenged host(theirs, other);
    EXPECT_FALSE(joiner.take(content_of(host.challenge), ends));
  }
}

TEST(Handshake, AReplayedProofIsNone) {
  JoinerHandshake joiner(group, greeting);
  Challenged first(joiner);
  const auto proof = joiner.take(content_of(first.challenge), ends);
  ASSERT_TRUE(proof);
  Challenged second(joiner);  // the attacker repeats the hello; the host's nonce is another
  EXPECT_EQ(second.host.take(group, content_of(proof_alone(*proof)), ends), "");
  EXPECT_EQ(second.host.state(), State::stranger);
}

TEST(Handshake, AReplayedChallengeIsNone) {
  const JoinerHandshake first(group, greeting);
  const Challenged recorded(first);
  JoinerHandshake second(group, greeting);
  EXPECT_FALSE(second.take(content_of(recorded.challenge), ends));
}

TEST(Handshake, AReflectedProofIsNone) {
  JoinerHandshake joiner(group, greeting);
  Challenged host(joiner);
  // The host's own code comes back to it as the joiner's.
  Frame challenge = content_of(host.challenge);
  static_cast<void>(challenge.text());
  const std::string reflected = FrameWriter(HandshakeKind::proof).text(challenge.text()).take();
  EXPECT_EQ(host.host.take(group, content_of(reflected), ends), "");
  EXPECT_EQ(host.host.state(), State::stranger);
}

TEST(Handshake, AJoinersProofIsNoChallenge) {
  JoinerHandshake joiner(group, greeting);
  const Challenged host(joiner);
  const auto proof = joiner.take(content_of(host.challenge), ends);
  Frame frame = content_of(proof_alone(*proof));
  Frame challenge = content_of(host.challenge);
  const std::string forged = FrameWriter(HandshakeKind::challenge).text(challenge.text()).text(frame.text()).take();
  EXPECT_FALSE(joiner.take(content_of(forged), ends));
}

TEST(Handshake, ARelayBetweenOtherAddressesIsNone) {
  // The relay listens where the joiner expects the host, and connects to the host from an address of its own.
  JoinerHandshake joiner(group, greeting);
  const Challenged host(joiner, group, {"the relay's address", "host's address"});
  EXPECT_FALSE(joiner.take(content_of(host.challenge), {"joiner's address", "the relay's listener"}));
}

TEST(Handshake, TheGreetingCannotBeExchanged) {
  JoinerHandshake joiner(group, greeting);
  Challenged host(joiner);
  const auto proof = joiner.take(content_of(host.challenge), ends);
  static_cast<void>(host.host.take(group, content_of(proof_alone(*proof)), ends));
  const std::string other = FrameWriter(HandshakeKind::greeting).text("rank 0").take();
  EXPECT_EQ(host.host.take(group, content_of(other), ends), "");
  EXPECT_EQ(host.host.state(), State::stranger);
}

TEST(Handshake, FramesOutOfOrderAreAStrangers) {
  const JoinerHandshake joiner(group, greeting);
  for (const std::string& first : {greeting, FrameWriter(HandshakeKind::proof).text("x").take(),
                                   FrameWriter(HandshakeKind::challenge).text("x").take()}) {
    HostHandshake host;
    EXPECT_EQ(host.take(group, content_of(first), ends), "");
    EXPECT_EQ(host.state(), State::stranger);
  }
  for (const std::string& second : {joiner.hello(), greeting}) {
    Challenged host(joiner);
    EXPECT_EQ(host.host.take(group, content_of(second), ends), "");
    EXPECT_EQ(host.host.state(), State::stranger);
  }
}

TEST(Handshake, EveryBitOfTheProofCounts) {
  JoinerHandshake joiner(group, greeting);
  for (std::size_t bit = 0; bit < 8 * key_bytes; ++bit) {
    Challenged host(joiner);
    std::string proof = proof_alone(*joiner.take(content_of(host.challenge), ends));
    proof[proof.size() - 1 - bit / 8] = static_cast<char>(proof[proof.size() - 1 - bit / 8] ^ (1 << (bit % 8)));
    static_cast<void>(host.host.take(group, content_of(proof), ends));
    ASSERT_EQ(host.host.state(), State::stranger) << bit;
  }
}

}  // namespace
}  // namespace amldist::wireup::handshake_test
