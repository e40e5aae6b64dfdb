// The mutual proof, and what attackers may try on it. README.md of libdist/world/wireup has the protocol.
#include "world/wireup/handshake.hpp"

#include <gtest/gtest.h>

#include "pair.hpp"

namespace amldist::world::handshake_test {
namespace {

using State = HostHandshake::State;

const GroupKey group(secret_of("step 42.0"), "world");
const Ends ends = {"joiner's address", "host's address"};
const std::string join_request = FrameWriter(HandshakeKind::join_request).text("rank 1").take();

/// A host that has answered a hello.
struct Challenged {
  explicit Challenged(const JoinerHandshake& joiner, const GroupKey& key = group, const Ends& seen = ends)
      : challenge(host.take(key, content_of(joiner.hello()), seen)) {}
  HostHandshake host;
  std::string challenge;
};

/// The proof of a joiner, without the join request behind it.
std::string proof_alone(const std::string& proof_and_join_request) {
  return proof_and_join_request.substr(0, proof_and_join_request.size() - join_request.size());
}

TEST(Handshake, ProvesBothSidesAndBringsTheJoinRequest) {
  JoinerHandshake joiner(group, join_request);
  Challenged host(joiner);
  const auto proof = joiner.take(content_of(host.challenge), ends);
  ASSERT_TRUE(proof);
  EXPECT_EQ(host.host.take(group, content_of(proof_alone(*proof)), ends), "");
  EXPECT_TRUE(host.host.has_proven());
  EXPECT_EQ(host.host.take(group, content_of(join_request), ends), "");
  ASSERT_EQ(host.host.state(), State::complete);
  EXPECT_EQ(host.host.join_request().text(), "rank 1");
}

TEST(Handshake, WorksWithoutASecretToo) {
  const GroupKey open({}, "world");
  JoinerHandshake joiner(open, join_request);
  Challenged host(joiner, open);
  const Ends translated = {"another address", "yet another"};  // nothing is protected: nothing is to break either
  const auto proof = joiner.take(content_of(host.challenge), translated);
  ASSERT_TRUE(proof);
  static_cast<void>(host.host.take(open, content_of(proof_alone(*proof)), ends));
  EXPECT_TRUE(host.host.has_proven());
}

TEST(Handshake, FitsIntoWhatAStrangerMaySend) {
  JoinerHandshake joiner(group, join_request);
  const Challenged host(joiner);
  EXPECT_LE(joiner.hello().size(), limits.proof_bytes);
  EXPECT_LE(host.challenge.size(), limits.proof_bytes);
}

TEST(Handshake, AnotherSecretOrWorldIsElsewhere) {
  for (const GroupKey& other : {GroupKey(secret_of("step 43.0"), "world"), GroupKey(secret_of("step 42.0"), "another"),
                                GroupKey({}, "world")}) {
    HostHandshake host;
    EXPECT_EQ(host.take(group, content_of(JoinerHandshake(other, join_request).hello()), ends), "");
    EXPECT_EQ(host.state(), State::elsewhere);
  }
}

TEST(Handshake, AHostOfAnotherSecretOrWorldIsNone) {
  JoinerHandshake joiner(group, join_request);
  for (const GroupKey& other : {GroupKey(secret_of("step 43.0"), "world"), GroupKey(secret_of("step 42.0"), "another"),
                                GroupKey({}, "world")}) {
    const JoinerHandshake theirs(other, join_request);
    const Challenged host(theirs, other);
    EXPECT_FALSE(joiner.take(content_of(host.challenge), ends));
  }
}

TEST(Handshake, AReplayedProofIsNone) {
  JoinerHandshake joiner(group, join_request);
  Challenged first(joiner);
  const auto proof = joiner.take(content_of(first.challenge), ends);
  ASSERT_TRUE(proof);
  Challenged second(joiner);  // the attacker repeats the hello; the host's nonce is another
  EXPECT_EQ(second.host.take(group, content_of(proof_alone(*proof)), ends), "");
  EXPECT_EQ(second.host.state(), State::stranger);
}

TEST(Handshake, AReplayedChallengeIsNone) {
  const JoinerHandshake first(group, join_request);
  const Challenged recorded(first);
  JoinerHandshake second(group, join_request);
  EXPECT_FALSE(second.take(content_of(recorded.challenge), ends));
}

TEST(Handshake, AReflectedProofIsNone) {
  JoinerHandshake joiner(group, join_request);
  Challenged host(joiner);
  // The host's own code comes back to it as the joiner's.
  Frame challenge = content_of(host.challenge);
  static_cast<void>(challenge.text());
  const std::string reflected = FrameWriter(HandshakeKind::proof).text(challenge.text()).take();
  EXPECT_EQ(host.host.take(group, content_of(reflected), ends), "");
  EXPECT_EQ(host.host.state(), State::stranger);
}

TEST(Handshake, AJoinersProofIsNoChallenge) {
  JoinerHandshake joiner(group, join_request);
  const Challenged host(joiner);
  const auto proof = joiner.take(content_of(host.challenge), ends);
  Frame frame = content_of(proof_alone(*proof));
  Frame challenge = content_of(host.challenge);
  const std::string forged = FrameWriter(HandshakeKind::challenge).text(challenge.text()).text(frame.text()).take();
  EXPECT_FALSE(joiner.take(content_of(forged), ends));
}

TEST(Handshake, ARelayBetweenOtherAddressesIsNone) {
  // The relay listens where the joiner expects the host, and connects to the host from an address of its own.
  JoinerHandshake joiner(group, join_request);
  const Challenged host(joiner, group, {"the relay's address", "host's address"});
  EXPECT_FALSE(joiner.take(content_of(host.challenge), {"joiner's address", "the relay's listener"}));
}

TEST(Handshake, TheJoinRequestCannotBeExchanged) {
  JoinerHandshake joiner(group, join_request);
  Challenged host(joiner);
  const auto proof = joiner.take(content_of(host.challenge), ends);
  static_cast<void>(host.host.take(group, content_of(proof_alone(*proof)), ends));
  const std::string other = FrameWriter(HandshakeKind::join_request).text("rank 0").take();
  EXPECT_EQ(host.host.take(group, content_of(other), ends), "");
  EXPECT_EQ(host.host.state(), State::stranger);
}

TEST(Handshake, FramesOutOfOrderAreAStrangers) {
  const JoinerHandshake joiner(group, join_request);
  for (const std::string& first : {join_request, FrameWriter(HandshakeKind::proof).text("x").take(),
                                   FrameWriter(HandshakeKind::challenge).text("x").take()}) {
    HostHandshake host;
    EXPECT_EQ(host.take(group, content_of(first), ends), "");
    EXPECT_EQ(host.state(), State::stranger);
  }
  for (const std::string& second : {joiner.hello(), join_request}) {
    Challenged host(joiner);
    EXPECT_EQ(host.host.take(group, content_of(second), ends), "");
    EXPECT_EQ(host.host.state(), State::stranger);
  }
}

TEST(Handshake, EveryBitOfTheProofCounts) {
  JoinerHandshake joiner(group, join_request);
  for (std::size_t bit = 0; bit < 8 * key_bytes; ++bit) {
    Challenged host(joiner);
    std::string proof = proof_alone(*joiner.take(content_of(host.challenge), ends));
    proof[proof.size() - 1 - bit / 8] = static_cast<char>(proof[proof.size() - 1 - bit / 8] ^ (1 << (bit % 8)));
    static_cast<void>(host.host.take(group, content_of(proof), ends));
    ASSERT_EQ(host.host.state(), State::stranger) << bit;
  }
}

}  // namespace
}  // namespace amldist::world::handshake_test
