#include "world/wireup/joiner.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "pair.hpp"
#include "world/wireup/acceptor.hpp"
#include "world/wireup/limits.hpp"

namespace amldist::world::joiner_test {
namespace {

std::string join_request(const std::string& name) { return JoinRequest{name, 0, 1, 1, "n", {}}.to_frame().take(); }

const Credentials secret = secret_of("step 42.0");
const GroupKey group(secret, "42.0");

/// What a joining process makes of a host that proves the secret and then gives this answer.
Result<bool> introduce_to(std::string_view answer) {
  Pair pair;
  std::thread host([&] {
    HostHandshake handshake;
    const auto deadline = Clock::now() + std::chrono::seconds(30);
    while (handshake.state() != HostHandshake::State::complete) {
      auto frame = read_frame(pair.far, handshake.most_bytes(), deadline);
      if (!frame) return;
      pair.send(handshake.take(group, std::move(*frame), {}));
    }
    pair.send(answer);
  });
  const auto deadline = Clock::now() + (answer.empty() ? std::chrono::milliseconds(20) : std::chrono::seconds(30));
  auto introduced = introduce(pair.near, join_request("42.0"), group, deadline);
  pair.near = FileDescriptor();
  host.join();
  return introduced;
}

TEST(Introduce, IsAcceptedByItsGroupOnly) {
  for (const std::string& answer : {accepted_frame(), elsewhere_frame(), std::string("HTTP/1.1 400 Bad Request\r\n"),
                                    FrameWriter(HandshakeKind::accepted).number(1).take(), std::string()}) {
    const auto accepted = introduce_to(answer);
    ASSERT_TRUE(accepted);
    EXPECT_EQ(*accepted, answer == accepted_frame());
  }
}

TEST(Introduce, BelievesNobodyWhoHasNotProvenTheSecret) {
  const std::string nonce(key_bytes, 'n');
  for (const std::string& answer :
       {accepted_frame(), refused_frame({Errc::mismatch, "go away"}), elsewhere_frame(),
        FrameWriter(HandshakeKind::challenge).text(nonce).text(std::string(key_bytes, 'c')).take() + accepted_frame(),
        FrameWriter(HandshakeKind::challenge).text(nonce).take(), FrameWriter(HandshakeKind::challenge).take()}) {
    Pair pair;
    pair.send(answer);
    const auto introduced = introduce(pair.near, join_request("42.0"), group, Clock::now() + std::chrono::seconds(30));
    ASSERT_TRUE(introduced) << "a stranger's refusal ends nothing";
    EXPECT_FALSE(*introduced);
    const std::string hello = pair.receive().content();
    EXPECT_EQ(Frame(hello).kind<HandshakeKind>(), HandshakeKind::hello);
    EXPECT_TRUE(pair.receive().content().empty()) << "and it learns neither proof nor join request";
  }
}

TEST(Introduce, IsToldWhyItIsRefused) {
  const auto refused = introduce_to(refused_frame({Errc::mismatch, "rank 1 came twice"}));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::mismatch);
  EXPECT_EQ(refused.error().message, "rank 1 came twice");
}

TEST(Introduce, ARefusalIsASentenceWhoeverSendsIt) {
  const auto refused =
      introduce_to(FrameWriter(HandshakeKind::refused).number(1 << 20).text("\x1b[2J" + std::string(2000, 'x')).take());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Errc::peer);
  EXPECT_TRUE(refused.error().message.starts_with("\\x1b[2Jxxx"));
  EXPECT_LT(refused.error().message.size(), limits.sentence_characters + 100);
  const auto silent = introduce_to(FrameWriter(HandshakeKind::refused).take());
  ASSERT_FALSE(silent);
  EXPECT_FALSE(silent.error().message.empty());
}

/// An accepting side in a thread.
class Server {
 public:
  explicit Server(Group served, const Credentials& credentials = secret)
      : listener_(listen_on(0).value()), acceptor_(std::move(served), credentials) {
    thread_ = std::thread([this] {
      while (!stop_) {
        static_cast<void>(wait_until_ready(listener_, Readiness::read, Clock::now() + std::chrono::milliseconds(1)));
        static_cast<void>(acceptor_.serve(listener_, Clock::now()));
      }
    });
  }
  ~Server() {
    stop_ = true;
    thread_.join();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  [[nodiscard]] Endpoint endpoint() const { return {"127.0.0.1", local_port(listener_)}; }

 private:
  FileDescriptor listener_;
  Acceptor acceptor_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

Destination at(std::vector<Endpoint> endpoints) {
  return {[endpoints](Clock::time_point) { return Result(endpoints); }, "rank 0", ": is it there?"};
}

TEST(Join, FindsItsGroupAmongOthers) {
  const Server other({"43.0", 0, 1});
  const Server own({"42.0", 0, 1});
  const auto destination = at({{"name.invalid", 1}, other.endpoint(), own.endpoint()});
  const auto joined = join(destination, join_request("42.0"), group, Clock::now() + std::chrono::seconds(30));
  ASSERT_TRUE(joined) << joined.error().message;
  EXPECT_EQ(joined->where.to_string(), own.endpoint().to_string());
}

TEST(Join, PassesByWhoeverLacksTheSecret) {
  const Server open({"42.0", 0, 1}, Credentials{});
  const Server another({"42.0", 0, 1}, secret_of("step 43.0"));
  const Server own({"42.0", 0, 1});
  const auto destination = at({open.endpoint(), another.endpoint(), own.endpoint()});
  const auto joined = join(destination, join_request("42.0"), group, Clock::now() + std::chrono::seconds(30));
  ASSERT_TRUE(joined) << joined.error().message;
  EXPECT_EQ(joined->where.to_string(), own.endpoint().to_string());
}

TEST(Join, SaysWhatItFoundInstead) {
  const Server other({"43.0", 0, 1});
  const auto joined =
      join(at({other.endpoint()}), join_request("42.0"), group, Clock::now() + std::chrono::milliseconds(50));
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().code, Errc::timeout);
  EXPECT_EQ(joined.error().message, "rank 0 did not answer before the deadline (the program that answers at " +
                                        other.endpoint().to_string() + " does not belong to this step): is it there?");
}

TEST(Join, ARefusalEndsTheSearch) {
  const Server own({"42.0", 0, 2});
  const auto joined = join(at({own.endpoint()}), join_request("42.0"), group, Clock::now() + std::chrono::seconds(30));
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().code, Errc::mismatch);
}

TEST(Join, AJoinRequestLongerThanTheLimitIsNotSent) {
  const auto joined = join(at({}), join_request(std::string(limits.join_request_bytes, 'x')), group, Clock::now());
  ASSERT_FALSE(joined);
  EXPECT_EQ(joined.error().code, Errc::limit);
}

}  // namespace
}  // namespace amldist::world::joiner_test
